"""Numbers: series, tables, physics, and the loops of agents."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.program import TPU, Program, Trained, after, of, program


@program("windows of a series by timeseries_dataset_from_array, 33 of them in batches of 8")
def weather_forecast(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((12, 7))
        x = layers.LSTM(64)(inputs)
        model = k.Model(inputs, layers.Dense(1)(x))
        model.compile(k.optimizers.Adam(1e-3), "mse")
    series = data.rows(80, 7)
    found = k.utils.timeseries_dataset_from_array(
        series[:-14], series[14:, 1], sequence_length=12, sampling_rate=3, batch_size=8
    )
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("attention over series, their length taken from the batch; 22 series of two lengths by 8")
def series_transformer(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((None, 3))
        x = layers.Dense(64)(inputs)
        for _ in range(2):
            seen = layers.MultiHeadAttention(4, 16, dropout=0.1)(x, x)
            seen = layers.LayerNormalization(epsilon=1e-6)(x + layers.Dropout(0.1)(seen))
            wide = layers.Conv1D(64, 1, activation="relu")(seen)
            x = layers.LayerNormalization(epsilon=1e-6)(seen + layers.Conv1D(64, 1)(wide))
        x = layers.GlobalAveragePooling1D()(x)
        x = layers.Dropout(0.1)(layers.Dense(128, activation="relu")(x))
        model = k.Model(inputs, layers.Dense(4, activation="softmax")(x))
        model.compile(k.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    lengths = [18] * 12 + [13] * 10

    def examples() -> Any:
        for i, length in enumerate(lengths):
            yield data.rows(length + i, 3)[:length], i % 4

    signature = (tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((), tf.int32))
    found = tf.data.Dataset.from_generator(examples, output_signature=signature)
    found = found.apply(tf.data.experimental.assert_cardinality(len(lengths)))
    history = model.fit(found.padded_batch(8), epochs=1, verbose=0)
    return after(model, seen=[history])


class Scaled(layers.Layer):
    """Normalizes each series by its own mean and deviation, and turns that back at the end."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        mean, variance = k.ops.moments(x, axes=1, keepdims=True)
        deviation = k.ops.sqrt(variance + 1e-5)
        return (x - mean) / deviation * self.gain, mean, deviation


@program("many steps ahead by Dense layers on the transposed series; PyDataset of 21 by 8")
def many_steps_ahead(strategy: tf.distribute.Strategy) -> Trained:
    class Windows(k.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            rows = series[index * 8 : index * 8 + 8]
            return rows[:, :24], rows[:, 24:]

    series = data.rows(21 * 32, 8).reshape(21, 32, 8)
    with strategy.scope():
        inputs = k.Input((24, 8))
        x, mean, deviation = Scaled()(inputs)
        x = k.ops.transpose(x, (0, 2, 1))
        x = layers.Dense(128, activation="gelu")(x)
        x = x + layers.Dense(128)(layers.Dropout(0.1)(x))
        x = k.ops.transpose(layers.Dense(8)(x), (0, 2, 1))
        model = k.Model(inputs, x * deviation + mean)
        model.compile(k.optimizers.AdamW(1e-3), k.losses.Huber(), metrics=["mae"])
    history = model.fit(Windows(workers=1), epochs=2, verbose=0)
    return after(model, seen=[history])


@program("Normalization and lookups of numbers adapted first, in the model; 63 rows by 16")
def structured_data(strategy: tf.distribute.Strategy) -> Trained:
    random = np.random.default_rng(3)
    rows = {
        "age": random.integers(18, 80, (63, 1)).astype(np.float32),
        "pay": random.random((63, 1), dtype=np.float32) * 1e4,
        "code": random.integers(100, 130, (63, 1)),
        "kind": random.integers(0, 6, (63, 1)),
    }
    with strategy.scope():
        inputs = {
            name: k.Input((1,), dtype=column.dtype.name, name=name) for name, column in rows.items()
        }
        encoded = []
        for name in ("age", "pay"):
            normalization = layers.Normalization()
            normalization.adapt(rows[name])
            encoded.append(normalization(inputs[name]))
        lookup = layers.IntegerLookup(vocabulary=[*range(100, 128)], output_mode="int")
        code = layers.Embedding(30, 64)(lookup(inputs["code"]))
        encoded.append(layers.Flatten()(code))
        encoded.append(layers.CategoryEncoding(6, output_mode="one_hot")(inputs["kind"]))
        x = layers.Concatenate()(encoded)
        deep = layers.Dense(128, activation="relu")(x)
        deep = layers.Dense(64, activation="relu")(layers.BatchNormalization()(deep))
        both = layers.Concatenate()([deep, x])
        model = k.Model(inputs, layers.Dense(1, activation="sigmoid")(both))
        model.compile(k.optimizers.Adam(1e-2), "binary_crossentropy", metrics=[k.metrics.AUC()])
    history = model.fit(rows, data.labels(63, 2), batch_size=16, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("columns of strings looked up and crossed in tf.data; 41 rows by 8, csv-like dictionaries")
def wide_and_deep(strategy: tf.distribute.Strategy) -> Trained:
    random = np.random.default_rng(5)
    jobs, cities = ["sailor", "farmer", "teacher"], ["oslo", "lima", "pune", "york"]
    rows = {"job": random.choice(jobs, 41), "city": random.choice(cities, 41)}
    rows["hours"] = random.random(41).astype(np.float32)
    job = layers.StringLookup(vocabulary=jobs, output_mode="one_hot")
    city = layers.StringLookup(vocabulary=cities)
    crossed = layers.HashedCrossing(256, output_mode="one_hot")

    def encoded(row: dict[str, tf.Tensor], label: tf.Tensor) -> Any:
        wide = crossed((row["job"], row["city"]))
        return {
            "wide": wide,
            "job": job(row["job"]),
            "city": city(row["city"]),
            "hours": row["hours"],
        }, label

    with strategy.scope():
        inputs = {
            "wide": k.Input((256,), name="wide"),
            "job": k.Input((4,), name="job"),
            "city": k.Input((), dtype="int64", name="city"),
            "hours": k.Input((), name="hours"),
        }
        where = layers.Embedding(5, 16)(inputs["city"])
        hours = layers.Reshape((1,))(inputs["hours"])
        x = layers.Concatenate()([inputs["job"], where, hours])
        for width in (128, 64):
            x = layers.Dense(width, activation="selu")(x)
        wide = layers.Dense(32)(inputs["wide"])
        model = k.Model(inputs, layers.Dense(1)(layers.Concatenate()([x, wide])))
        loss = k.losses.BinaryCrossentropy(from_logits=True)
        model.compile(k.optimizers.Ftrl(0.1), loss, metrics=["accuracy"])
    found = tf.data.Dataset.from_tensor_slices((rows, data.labels(41, 2)))
    history = model.fit(found.batch(8).map(encoded), epochs=2, verbose=0)
    return after(model, seen=[history])


class HeatEquation(k.Model):
    """What a net says of heat over time and place is to obey u_t = a u_xx."""

    def train_step(self, points: tf.Tensor) -> dict[str, tf.Tensor]:
        time, place = points[:, :1], points[:, 1:]
        with tf.GradientTape() as tape:
            with tf.GradientTape() as second:
                second.watch(place)
                with tf.GradientTape(persistent=True) as first:
                    first.watch([time, place])
                    heat = self(k.ops.concatenate([time, place], axis=1), training=True)
                by_place = first.gradient(heat, place)
            by_time = first.gradient(heat, time)
            curved = second.gradient(by_place, place)
            start = self(k.ops.concatenate([0 * time, place], axis=1))
            residual = k.ops.mean((by_time - 0.1 * curved) ** 2)
            loss = residual + k.ops.mean((start - k.ops.sin(np.pi * place)) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss, "residual": residual}


@program(
    "second derivatives by the inputs in train_step; 50 points in batches of 16",
    refused={TPU: "a concatenation has no second derivative there (XlaDynamicUpdateSlice)"},
)
def heat_equation(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((2,))
        x = inputs
        for _ in range(4):
            x = layers.Dense(64, activation="tanh")(x)
        model = HeatEquation(inputs, layers.Dense(1)(x))
        schedule = k.optimizers.schedules.ExponentialDecay(1e-3, 2, 0.9)
        model.compile(k.optimizers.Adam(schedule))
    points = np.random.default_rng(2).random((50, 2), dtype=np.float32)
    history = model.fit(points, batch_size=16, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("episodes of unequal lengths, each a batch of its own; two heads, one step each episode")
def actor_critic(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((8,))
        x = layers.Dense(128, activation="relu")(inputs)
        x = layers.Dense(128, activation="relu")(x)
        model = k.Model(inputs, [layers.Dense(3, activation="softmax")(x), layers.Dense(1)(x)])
        optimizer = k.optimizers.Adam(1e-2)
        optimizer.build(model.trainable_variables)
        huber = k.losses.Huber(reduction="none")

    @tf.function(reduce_retracing=True)
    def learn(states: Any, actions: Any, returns: Any) -> Any:
        def replica(states: tf.Tensor, actions: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                chances, worth = model(states)
                taken = k.ops.sum(k.ops.one_hot(actions, 3) * chances, axis=1)
                better = returns - worth[:, 0]
                loss = -k.ops.log(taken) * k.ops.stop_gradient(better)
                loss = k.ops.sum(loss + huber(returns[:, None], worth))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        each = strategy.run(replica, (states, actions, returns))
        return strategy.reduce("SUM", each, axis=None)

    seen = []
    for episode, length in enumerate((9, 14, 5, 12)):
        random = np.random.default_rng(episode)
        states = random.standard_normal((length, 8)).astype(np.float32)
        actions = random.integers(0, 3, length)
        returns = np.cumsum(random.random(length)[::-1])[::-1].astype(np.float32)
        whole = tf.data.Dataset.from_tensors((states, actions, returns.copy()))
        batches = whole.unbatch().batch(length)
        for batch in strategy.experimental_distribute_dataset(batches):
            seen.append(learn(*batch))
    return of(model.trainable_variables, [optimizer], seen=seen)


@program("two nets, one a copy of the other from time to time; batches drawn from a memory")
def deep_q(strategy: tf.distribute.Strategy) -> Trained:
    def net() -> k.Model:
        return k.Sequential(
            [
                k.Input((10, 10, 4)),
                layers.Conv2D(32, 4, strides=2, activation="relu"),
                layers.Conv2D(64, 3, activation="relu"),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(4),
            ]
        )

    with strategy.scope():
        model, target = net(), net()
        target.set_weights(model.get_weights())
        model.compile(k.optimizers.Adam(2.5e-4, clipnorm=1.0), k.losses.Huber())
    random = np.random.default_rng(1)
    memory = [random.random((40, 10, 10, 4), dtype=np.float32) for _ in range(2)]
    seen: list[Any] = []
    for step in range(4):
        chosen = random.integers(0, 40, 14 - step)
        future = np.array(target(memory[1][chosen])).max(axis=1)
        wanted = np.repeat((random.random(len(chosen)) + 0.9 * future)[:, None], 4, axis=1)
        seen.append(model.fit(memory[0][chosen], wanted, batch_size=8, verbose=0))
        if step == 1:
            target.set_weights(model.get_weights())
    found = after(model, seen=seen)
    return Trained(found.weights, [*found.state, *target.weights], found.seen)


PROGRAMS: tuple[Program, ...] = (
    weather_forecast,
    series_transformer,
    many_steps_ahead,
    structured_data,
    wide_and_deep,
    heat_equation,
    actor_critic,
    deep_q,
)

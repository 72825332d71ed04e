"""Programs of the Keras before 3, by the name of tf_keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as k
from tf_keras import layers

from tests.real import data
from tests.real.program import TPU, Program, Trained, after, program


@program("tf_keras: rank-3 rows, 30 of them in batches of 8, a validation split")
def keras_two_dense(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                layers.Input((12, 64)),
                layers.Dense(128, activation="relu"),
                layers.GlobalAveragePooling1D(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    inputs = data.rows(37 * 12, 64).reshape(37, 12, 64)
    history = model.fit(
        inputs, data.labels(37, 10), batch_size=8, epochs=2, validation_split=0.2, verbose=0
    )
    return after(model, seen=[history])


@program("tf_keras: padded_batch of 27 by 8 with masks, an LSTM both ways")
def keras_two_lstm(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                layers.Embedding(200, 32, mask_zero=True),
                layers.Bidirectional(layers.LSTM(32)),
                layers.Dense(64, activation="relu"),
                layers.Dense(1),
            ]
        )
        loss = k.losses.BinaryCrossentropy(from_logits=True)
        model.compile(k.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    wanted = tf.data.Dataset.from_tensor_slices(data.labels(27, 2)[:, None])
    found = tf.data.Dataset.zip((data.dataset(data.tokens(27, 4, 13, 200)), wanted))
    history = model.fit(found.padded_batch(8), epochs=2, verbose=0)
    return after(model, seen=[history])


class Block(layers.Layer):
    """Attention and Dense layers around residual connections."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        self.attention = layers.MultiHeadAttention(heads, width // heads)
        self.dense = k.Sequential([layers.Dense(width, "gelu"), layers.Dense(width)])
        self.first, self.second = layers.LayerNormalization(), layers.LayerNormalization()
        self.dropped = layers.Dropout(0.1)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        seen = self.attention(x, x, use_causal_mask=self.causal, training=training)
        x = self.first(x + self.dropped(seen, training=training))
        return self.second(x + self.dense(x))


class Embedded(layers.Layer):
    """Words and the first rows of a table of places, a slice by the step's shape."""

    def __init__(self, words: int, longest: int, width: int) -> None:
        super().__init__()
        self.words = layers.Embedding(words, width)
        self.longest, self.width = longest, width

    def build(self, shape: Any) -> None:
        self.places = self.add_weight("places", (self.longest, self.width))
        super().build(shape)

    def call(self, words: tf.Tensor) -> tf.Tensor:
        return self.words(words) + self.places[tf.newaxis, : tf.shape(words)[1]]


@program("tf_keras: the position table sliced to tf.shape(x)[1]; texts of two lengths, 22 by 8")
def keras_two_text_classifier(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = layers.Input((None,), dtype="int32")
        x = Block(64, 4)(Embedded(160, 40, 64)(inputs))
        x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
        model = k.Model(inputs, layers.Dense(3)(x))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.AdamW(1e-3), loss, metrics=["accuracy"])

    def batches() -> Any:
        random = np.random.default_rng(6)
        for size, length in ((8, 11), (8, 17), (6, 9)):
            yield random.integers(0, 160, (size, length)), random.integers(0, 3, size)

    signature = (tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None,), tf.int32))
    found = tf.data.Dataset.from_generator(batches, output_signature=signature)
    found = found.apply(tf.data.experimental.assert_cardinality(3))
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


class CausalModel(k.Model):
    """Words in and out by one table; the loss is the model's own, as hubs have it."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedded = Embedded(words, 32, width)
        self.blocks = [Block(width, 4, causal=True) for _ in range(2)]
        self.norm = layers.LayerNormalization()

    def call(self, words: tf.Tensor, training: bool = False) -> tf.Tensor:
        x = self.embedded(words)
        for block in self.blocks:
            x = block(x, training=training)
        table = self.embedded.words.embeddings
        batch, length, _ = tf.unstack(tf.shape(x))
        flat = tf.reshape(self.norm(x), (-1, table.shape[-1]))
        logits = tf.matmul(flat, table, transpose_b=True)
        return tf.reshape(logits, (batch, length, table.shape[0]))

    def train_step(self, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        words = batch["words"]
        with tf.GradientTape() as tape:
            logits = self(words, training=True)[:, :-1]
            each = k.losses.sparse_categorical_crossentropy(words[:, 1:], logits, from_logits=True)
            mask = tf.cast(words[:, 1:] > 0, each.dtype)
            loss = tf.reduce_sum(each * mask) / tf.maximum(tf.reduce_sum(mask), 1.0)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


@program(
    "tf_keras: a causal model with tied weights and reshapes by shape; padded_batch of 20 by 8"
)
def keras_two_gpt(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = CausalModel(150, 64)
        schedule = k.optimizers.schedules.PolynomialDecay(1e-3, 8)
        model.compile(k.optimizers.Adam(schedule, clipvalue=0.5))
    found = data.dataset(data.tokens(20, 4, 15, 150)).map(lambda words: {"words": words})
    history = model.fit(found.padded_batch(8), epochs=2, verbose=0)
    return after(model, seen=[history])


@program(
    "tf_keras: base frozen, then thawed and compiled again; an older optimizer; 31 images by 8",
    alone=(
        "on TPUs: tf_keras keeps the function of the first compile, which reads the frozen weights"
        " as whole ones; the older optimizer's fused update writes them in place"
    ),
)
def keras_two_fine_tuned(strategy: tf.distribute.Strategy) -> Trained:
    images, wanted = data.images(31, 16, 3), data.labels(31, 5)
    with strategy.scope():
        base = k.Sequential(
            [
                layers.Input((16, 16, 3)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.Conv2D(64, 3, strides=2, activation="relu"),
                layers.GlobalAveragePooling2D(),
            ]
        )
        base.trainable = False
        inputs = layers.Input((16, 16, 3))
        x = layers.Dense(128, activation="relu")(base(inputs, training=False))
        model = k.Model(inputs, layers.Dense(5)(layers.Dropout(0.2)(x)))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.legacy.Adam(1e-3), loss, metrics=["accuracy"])
    first = model.fit(images, wanted, batch_size=8, epochs=2, verbose=0)
    with strategy.scope():
        base.trainable = True
        model.compile(k.optimizers.legacy.RMSprop(1e-4, momentum=0.5), loss)
    second = model.fit(images, wanted, batch_size=8, epochs=1, verbose=0)
    return after(model, seen=[first, second])


@program(
    "tf_keras: mixed_float16, a scaled loss, two outputs, a Sequence of batches; 27 by 8",
    refused={TPU: "tf_keras scales no loss under a TPUStrategy"},
)
def keras_two_mixed_float16(strategy: tf.distribute.Strategy) -> Trained:
    class Batches(k.utils.Sequence):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            chosen = slice(index * 8, index * 8 + 8)
            return rows[chosen], {"kind": kinds[chosen], "value": values[chosen]}

    rows = data.rows(27 * 9, 24).reshape(27, 9, 24)
    kinds, values = data.labels(27, 6), rows.mean(axis=(1, 2))
    k.mixed_precision.set_global_policy("mixed_float16")
    with strategy.scope():
        inputs = layers.Input((9, 24))
        x = layers.Dense(128, activation="relu")(inputs)
        x = layers.Dense(128, activation="relu")(layers.GlobalMaxPooling1D()(x))
        outputs = {
            "kind": layers.Dense(6, dtype="float32", name="kind")(x),
            "value": layers.Dense(1, dtype="float32", name="value")(x),
        }
        model = k.Model(inputs, outputs)
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.Adam(1e-3), {"kind": loss, "value": "mse"})
    history = model.fit(Batches(), epochs=2, verbose=0)
    return after(model, seen=[history])


@program("tf_keras: hashed categories, features normalized, three callbacks; 45 rows by 16")
def keras_two_tabular(strategy: tf.distribute.Strategy) -> Trained:
    random = np.random.default_rng(9)
    rows = {
        "user": random.integers(0, 10**8, 45),
        "page": random.integers(0, 10**8, 45),
        "numbers": random.random((45, 6), dtype=np.float32),
    }
    with strategy.scope():
        normalization = layers.Normalization()
        normalization.adapt(rows["numbers"])
        user = layers.Input((), dtype="int64", name="user")
        page = layers.Input((), dtype="int64", name="page")
        numbers = layers.Input((6,), name="numbers")
        looked = [
            layers.Embedding(bins, 32)(layers.Hashing(bins)(given))
            for given, bins in ((user, 160), (page, 192))
        ]
        x = layers.Concatenate()([*looked, normalization(numbers)])
        x = layers.BatchNormalization()(layers.Dense(128, activation="relu")(x))
        model = k.Model([user, page, numbers], layers.Dense(1, activation="sigmoid")(x))
        model.compile(k.optimizers.Adagrad(0.05), "binary_crossentropy", metrics=["AUC"])
    history = model.fit(
        *(rows, data.labels(45, 2)),
        batch_size=16,
        epochs=2,
        verbose=0,
        callbacks=[
            k.callbacks.ReduceLROnPlateau(monitor="loss", patience=1),
            k.callbacks.EarlyStopping(monitor="loss", patience=2),
            k.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.95),
        ],
    )
    return after(model, seen=[history])


PROGRAMS: tuple[Program, ...] = (
    keras_two_dense,
    keras_two_lstm,
    keras_two_text_classifier,
    keras_two_gpt,
    keras_two_fine_tuned,
    keras_two_mixed_float16,
    keras_two_tabular,
)

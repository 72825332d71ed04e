"""Ways of training: from a teacher, for several tasks, in phases, learning to learn."""

from __future__ import annotations

from typing import Any

import keras as k
import numpy as np
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.program import Program, Trained, after, of, program


def _convnet(widths: tuple[int, int]) -> k.Sequential:
    return k.Sequential(
        [
            k.Input((16, 16, 1)),
            layers.Conv2D(widths[0], 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(widths[1], 3, strides=2, padding="same"),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


class Distiller(k.Model):
    """A student learns from labels and from what a frozen teacher says."""

    def __init__(self, student: k.Model, teacher: k.Model) -> None:
        super().__init__()
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False

    def compile(self, optimizer: Any, metrics: Any, own: Any, distilled: Any) -> None:
        super().compile(optimizer=optimizer, metrics=metrics)
        self.own, self.distilled = own, distilled

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> tf.Tensor:
        said = self.teacher(x, training=False)
        soft = [k.ops.softmax(logits / 3.0, axis=1) for logits in (said, y_pred)]
        return 0.1 * self.own(y, y_pred) + 0.9 * self.distilled(*soft) * 3.0**2

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.student(x)


@program("a teacher trained first, then frozen; compute_loss is its own; 27 images by 8")
def distillation(strategy: tf.distribute.Strategy) -> Trained:
    images, wanted = data.images(27, 16), data.labels(27, 10)
    with strategy.scope():
        teacher, student = _convnet((32, 64)), _convnet((16, 64))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        metrics = [k.metrics.SparseCategoricalAccuracy()]
        teacher.compile(k.optimizers.Adam(), loss, metrics=metrics)
    before = teacher.fit(images, wanted, batch_size=8, verbose=0)
    with strategy.scope():
        model = Distiller(student, teacher)
        model.compile(
            k.optimizers.Adam(),
            [k.metrics.SparseCategoricalAccuracy()],
            loss,
            k.losses.KLDivergence(),
        )
    history = model.fit(images, wanted, batch_size=8, epochs=2, verbose=0)
    weights = [*teacher.weights, *student.trainable_weights]
    return of(weights, [teacher.optimizer, model.optimizer], seen=[before, history])


@program(
    "two inputs, two outputs with losses of their own, weighted; rows without a label; 37 by 8"
)
def multi_task(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        text = k.Input((None,), dtype="int32", name="text")
        tags = k.Input((12,), name="tags")
        x = layers.LSTM(32)(layers.Embedding(150, 64)(text))
        x = layers.Dense(64, activation="relu")(layers.Concatenate()([x, tags]))
        priority = layers.Dense(1, name="priority")(layers.Dense(64, activation="relu")(x))
        department = layers.Dense(7, name="department")(layers.Dense(64, activation="relu")(x))
        model = k.Model([text, tags], {"priority": priority, "department": department})
        model.compile(
            "adam",
            loss={
                "priority": k.losses.BinaryCrossentropy(from_logits=True),
                "department": k.losses.SparseCategoricalCrossentropy(from_logits=True),
            },
            loss_weights={"priority": 1.0, "department": 0.2},
            metrics={"department": ["accuracy"]},
        )
    given = {"text": data.padded(data.tokens(37, 3, 10, 150), 10), "tags": data.rows(37, 12)}
    wanted = {"priority": data.labels(37, 2), "department": data.labels(37, 7)}
    known = {"priority": (data.labels(37, 3) > 0).astype(np.float32), "department": np.ones(37)}
    found = tf.data.Dataset.from_tensor_slices((given, wanted, known)).batch(8)
    history = model.fit(found, epochs=2, verbose=0)
    return after(model, seen=[history])


@program("layers frozen, then thawed and compiled again with another optimizer; 31 images by 8")
def fine_tuned(strategy: tf.distribute.Strategy) -> Trained:
    images, wanted = data.images(31, 16), data.labels(31, 10)
    with strategy.scope():
        base = k.Sequential(
            [
                k.Input((16, 16, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.Conv2D(64, 3, strides=2, activation="relu"),
                layers.GlobalAveragePooling2D(),
            ]
        )
        base.trainable = False
        inputs = k.Input((16, 16, 1))
        x = layers.Dense(128, activation="relu")(base(inputs, training=False))
        model = k.Model(inputs, layers.Dense(10)(layers.Dropout(0.2)(x)))
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(k.optimizers.Adam(1e-2), loss)
    first = model.fit(images, wanted, batch_size=8, epochs=2, verbose=0)
    head = model.optimizer
    with strategy.scope():
        base.trainable = True
        model.compile(k.optimizers.RMSprop(1e-4), loss, metrics=["accuracy"])
    second = model.fit(images, wanted, batch_size=8, epochs=2, verbose=0)
    for layer in base.layers[:2]:
        layer.trainable = False
    with strategy.scope():
        model.compile(k.optimizers.SGD(1e-4, momentum=0.9), loss)
    third = model.fit(images, wanted, batch_size=8, epochs=1, verbose=0)
    found = after(model, seen=[first, second, third])
    return Trained(found.weights, [*found.state, *head.variables], found.seen)


@program("weights set back between steps, towards the mean of several tasks; 5 to 8 shots")
def reptile(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                k.Input((14, 14, 1)),
                layers.Conv2D(64, 3, strides=2, activation="relu"),
                layers.Conv2D(64, 3, strides=2, activation="relu"),
                layers.Flatten(),
                layers.Dense(5, activation="softmax"),
            ]
        )
        optimizer = k.optimizers.SGD(3e-3)
        optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def step(images: Any, labels: Any) -> Any:
        def replica(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                each = k.losses.sparse_categorical_crossentropy(labels, model(images))
                loss = tf.nn.compute_average_loss(each, global_batch_size=8)
            gradients = tape.gradient(loss, model.trainable_weights)
            optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, (images, labels)), axis=None)

    seen = []
    for task in range(3):
        shots = 5 + task
        images, labels = data.images(shots * 4 + task, 14), data.labels(shots * 4 + task, 5)
        before = [np.array(weight) for weight in model.get_weights()]
        batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8)
        for batch in strategy.experimental_distribute_dataset(batches):
            seen.append(step(*batch))
        share = 0.25 * (1 - task / 3)
        pairs = zip(before, model.get_weights(), strict=True)
        model.set_weights([old + share * (new - old) for old, new in pairs])
    return of(model.trainable_weights, [optimizer], seen=seen)


class Maml(k.Model):
    """Learns weights from which one step on a few examples does well on others."""

    def __init__(self) -> None:
        super().__init__()
        self.learner = k.Sequential(
            [
                k.Input((8,)),
                layers.Dense(64, activation="tanh"),
                layers.Dense(128, activation="tanh"),
                layers.Dense(64, activation="tanh"),
                layers.Dense(1),
            ]
        )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.learner(x)

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        x, y = batch
        count = k.ops.shape(x)[0] // 2
        weights = [variable.value for variable in self.learner.trainable_variables]
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                before = k.ops.mean((self.learner(x[:count]) - y[:count]) ** 2)
            steps = inner.gradient(before, weights)
            fast = [w - 0.1 * step for w, step in zip(weights, steps, strict=True)]
            said, _ = self.learner.stateless_call(fast, [], x[count:])
            after_step = k.ops.mean((said - y[count:]) ** 2)
        gradients = outer.gradient(after_step, weights)
        self.optimizer.apply(gradients, self.learner.trainable_variables)
        return {"before": before, "after": after_step}


@program("the gradient of a gradient step, half of each batch for either, by shape; 44 rows by 16")
def maml(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = Maml()
        model.compile(k.optimizers.Adam(1e-3))
    inputs = data.rows(44, 8)
    history = model.fit(inputs, inputs.sum(axis=1, keepdims=True), batch_size=16, verbose=0)
    return after(model, seen=[history])


class Clipped(k.Model):
    """A step that clips gradients after taking them, and reports their norm."""

    def train_step(self, batch: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        x, y = batch
        with tf.GradientTape() as tape:
            given = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=given)
        gradients = tape.gradient(loss, self.trainable_weights)
        gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
        self.optimizer.apply(gradients, self.trainable_weights)
        for metric in self.metrics:
            metric.update_state(*((loss,) if metric.name == "loss" else (y, given)))
        return {metric.name: metric.result() for metric in self.metrics} | {"norm": norm}


@program("train_step overridden: clipped by the global norm of a replica; rank-3 rows, 30 by 8")
def own_train_step(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((10, 32))
        x = layers.Dense(128, activation="relu")(inputs)
        x = layers.Dense(64, activation="relu")(layers.GlobalMaxPooling1D()(x))
        model = Clipped(inputs, layers.Dense(1)(x))
        model.compile(k.optimizers.Nadam(1e-3), "mse", metrics=["mae"])
    inputs = data.rows(300, 32).reshape(30, 10, 32)
    history = model.fit(inputs, inputs.mean(axis=(1, 2)), batch_size=8, epochs=2, verbose=0)
    return after(model, seen=[history])


PROGRAMS: tuple[Program, ...] = (
    distillation,
    multi_task,
    fine_tuned,
    reptile,
    maml,
    own_train_step,
)

"""Classifiers of images and rows, most of them with a batch that is smaller at the end."""

from __future__ import annotations

import keras as k
import tensorflow as tf
from keras import layers

from tests.real import data
from tests.real.program import Program, Trained, after, program


@program("50 examples in batches of 8, a fifth of them held out")
def convnet(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                k.Input((16, 16, 1)),
                layers.Conv2D(16, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dropout(0.5),
                layers.Dense(64, activation="relu"),
                layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    wanted = k.utils.to_categorical(data.labels(50, 10), 10)
    history = model.fit(
        data.images(50, 16), wanted, batch_size=8, epochs=2, validation_split=0.2, verbose=0
    )
    return after(model, seen=[history])


@program("9 examples in batches of 8: the last batch leaves all replicas but one empty")
def last_batch_of_one(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                k.Input((12, 64)),
                layers.Dense(128, activation="relu"),
                layers.GlobalAveragePooling1D(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adamw", loss, metrics=["accuracy"])
    inputs = data.rows(9 * 12, 64).reshape(9, 12, 64)
    history = model.fit(inputs, data.labels(9, 10), batch_size=8, epochs=3, verbose=0)
    return after(model, seen=[history])


@program("classes weighted, 61 rows in batches of 20, the seed of dropout in the model")
def imbalanced(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        model = k.Sequential(
            [
                k.Input((30,)),
                layers.Dense(256, activation="relu"),
                layers.Dense(64, activation="relu"),
                layers.Dropout(0.3, seed=3),
                layers.Dense(64, activation="relu"),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        metrics = [k.metrics.Precision(name="precision"), k.metrics.Recall(name="recall")]
        model.compile(k.optimizers.Adam(1e-2), "binary_crossentropy", metrics=metrics)
    inputs, wanted = data.rows(61, 30), data.labels(61, 2)
    history = model.fit(
        *(inputs[:45], wanted[:45]),
        batch_size=20,
        epochs=2,
        verbose=0,
        validation_data=(inputs[45:], wanted[45:]),
        validation_batch_size=12,
        class_weight={0: 0.2, 1: 1.7},
    )
    return after(model, seen=[history])


def _mixer(rows: int, channels: int) -> k.Sequential:
    return k.Sequential(
        [
            layers.Dense(channels),
            layers.Activation("gelu"),
            layers.Dense(rows),
            layers.Dropout(0.1),
        ]
    )


class MixerBlock(layers.Layer):
    """Mixes patches, then channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.tokens, self.channels = _mixer(patches, 64), _mixer(width, 128)
        self.first, self.second = layers.LayerNormalization(), layers.LayerNormalization()

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        turned = k.ops.transpose(self.first(inputs), (0, 2, 1))
        mixed = inputs + k.ops.transpose(self.tokens(turned), (0, 2, 1))
        return mixed + self.channels(self.second(mixed))


class Patches(layers.Layer):
    """Cuts images into flattened patches, whose number is known when the step runs."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def call(self, images: tf.Tensor) -> tf.Tensor:
        patches = k.ops.image.extract_patches(images, self.size)
        batch, height, width, depth = k.ops.shape(patches)
        return k.ops.reshape(patches, (batch, height * width, depth))


@program("Dense layers on patches and, transposed, on channels; 26 images in batches of 8")
def mlp_mixer(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((32, 32, 3))
        x = layers.RandomFlip("horizontal", seed=5)(inputs)
        x = layers.Dense(64)(Patches(4)(x))
        positions = layers.Embedding(64, 64)(k.ops.arange(64))
        x = x + positions
        for _ in range(2):
            x = MixerBlock(64, 64)(x)
        x = layers.Dropout(0.2)(layers.GlobalAveragePooling1D()(x))
        model = k.Model(inputs, layers.Dense(10)(x))
        model.compile(
            k.optimizers.AdamW(5e-3, weight_decay=1e-4),
            k.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[k.metrics.SparseTopKCategoricalAccuracy(5, name="top5")],
        )
    history = model.fit(
        data.images(26, 32, 3), data.labels(26, 10), batch_size=8, epochs=1, verbose=0
    )
    return after(model, seen=[history])


def _separable(x: tf.Tensor, width: int) -> tf.Tensor:
    x = layers.SeparableConv2D(width, 3, padding="same")(layers.Activation("relu")(x))
    return layers.BatchNormalization()(x)


@program("tf.data with repeat() and steps_per_epoch, so that batches of 12 wrap around 44 images")
def xception(strategy: tf.distribute.Strategy) -> Trained:
    with strategy.scope():
        inputs = k.Input((32, 32, 3))
        x = layers.Rescaling(2.0, -1.0)(inputs)
        x = layers.Conv2D(32, 3, strides=2, padding="same")(x)
        for width in (64, 128):
            shorter = layers.Conv2D(width, 1, strides=2, padding="same")(x)
            x = _separable(_separable(x, width), width)
            x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
            x = layers.add([x, shorter])
        x = layers.GlobalAveragePooling2D()(x)
        model = k.Model(inputs, layers.Dense(2, activation="softmax")(x))
        schedule = k.optimizers.schedules.CosineDecay(1e-2, 20)
        optimizer = k.optimizers.SGD(schedule, momentum=0.9, nesterov=True)
        model.compile(optimizer, "sparse_categorical_crossentropy")
    found = tf.data.Dataset.from_tensor_slices((data.images(44, 32, 3), data.labels(44, 2)))
    found = found.shuffle(16, seed=2).repeat().batch(12).prefetch(1)
    history = model.fit(found, steps_per_epoch=2, epochs=2, verbose=0)
    return after(model, seen=[history])


PROGRAMS: tuple[Program, ...] = (convnet, last_batch_of_one, imbalanced, mlp_mixer, xception)

"""Convolutional image classifiers: a plain one, and one with BatchNorm and, if asked, Dropout.

The plain one answers "are 4-d kernels sharded like any other?". The other adds what a plain one
has not: variables that are assigned without a gradient (moving statistics), random ops in the
step, and scale vectors far below any sensible sharding threshold.
"""

import keras
import numpy as np


def conv(image: int = 8, channels: int = 1, filters: int = 8, classes: int = 10) -> keras.Model:
    """Returns an uncompiled classifier, [batch, image, image, channels] float32 -> logits.

    Two 3 x 3 convolutions of `filters` and 2 * `filters`, then two Dense layers. `image` is halved
    twice on the way.
    """
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((image, image, channels)),
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * filters, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(4 * filters, activation="relu"),
            layers.Dense(classes),
        ],
        name="conv",
    )


def conv_batchnorm(
    image: int = 8,
    channels: int = 1,
    filters: int = 8,
    classes: int = 10,
    dropout: float = 0.0,
) -> keras.Model:
    """Returns an uncompiled classifier, [batch, image, image, channels] float32 -> logits.

    The convolutions have no bias: before a BatchNorm its gradient is zero by mathematics, and
    Adam turns the rounding noise of such a gradient into full steps, which no comparison of two
    runs survives. `dropout` is the rate of the one Dropout layer; 0 leaves the layer out.
    """
    layers = keras.layers
    stack: list[keras.layers.Layer] = [layers.Input((image, image, channels))]
    for width in (filters, 2 * filters):
        stack += [
            layers.Conv2D(width, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
        ]
    stack += [layers.Flatten()]
    stack += [layers.Dropout(dropout, seed=7)] if dropout else []
    stack += [layers.Dense(classes)]
    return keras.Sequential(stack, name="conv_batchnorm")


def images_data(
    examples: int, seed: int = 0, image: int = 8, channels: int = 1, classes: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (images [examples, image, image, channels] float32, labels [examples] int32).

    Every class is one random picture of its own; an example is its class's picture plus noise.
    """
    random = np.random.default_rng(seed)
    pictures = random.standard_normal((classes, image, image, channels), dtype=np.float32)
    labels = random.integers(0, classes, examples).astype(np.int32)
    noise = random.standard_normal((examples, image, image, channels), dtype=np.float32)
    return pictures[labels] + np.float32(0.5) * noise, labels

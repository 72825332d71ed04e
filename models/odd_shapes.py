"""A dense net whose variables fit no replica count: primes, fewer elements than replicas, 0-d.

Answers "does padding go wrong anywhere?": no variable but the scalar has a size that 2, 4 or 8
divides, and the smallest have one and three elements.
"""

import keras
import numpy as np

_INPUTS = 7
_CLASSES = 3


@keras.saving.register_keras_serializable(package="tf_wu_shard")
class Gain(keras.layers.Layer):
    """Multiplies its input by one trained scalar: the 0-d variable of this model."""

    gain: keras.Variable

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes the scalar, float32, shape []."""
        self.gain = self.add_weight(shape=(), initializer="ones", name="gain")

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """Returns `inputs * gain`, same shape and dtype."""
        return inputs * self.gain


def odd_shapes(width: int = 13) -> keras.Model:
    """Returns an uncompiled classifier, [batch, 7] float32 -> [batch, 3] logits.

    Its kernels are 7 x width, width x 11 and 11 x 3; keep `width` odd, or the name lies.
    """
    return keras.Sequential(
        [
            keras.layers.Input((_INPUTS,)),
            keras.layers.Dense(width, activation="tanh"),
            keras.layers.Dense(11, activation="tanh"),
            Gain(),
            keras.layers.Dense(_CLASSES),
        ],
        name="odd_shapes",
    )


def odd_shapes_data(examples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns (inputs [examples, 7] float32, labels [examples] int32 below 3)."""
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((examples, _INPUTS), dtype=np.float32)
    return inputs, np.argmax(inputs[:, :_CLASSES], axis=1).astype(np.int32)

"""The layers of Transformers as people write them, with shapes asked for when the step runs."""

from __future__ import annotations

import keras as k
import tensorflow as tf
from keras import layers


class Positions(layers.Layer):
    """Embeds tokens and where they stand, for as many as the batch is long."""

    def __init__(self, longest: int, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = layers.Embedding(vocabulary, width)
        self.positions = layers.Embedding(longest, width)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        length = k.ops.shape(inputs)[-1]
        positions = k.ops.arange(0, length, 1)
        return self.tokens(inputs) + self.positions(positions)

    def compute_mask(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        return k.ops.not_equal(inputs, 0)


class Encoder(layers.Layer):
    """Attention and two Dense layers, each around a residual connection."""

    def __init__(self, width: int, heads: int, hidden: int, rate: float = 0.1) -> None:
        super().__init__()
        self.supports_masking = True
        self.attention = layers.MultiHeadAttention(heads, width // heads)
        self.dense = k.Sequential([layers.Dense(hidden, activation="relu"), layers.Dense(width)])
        self.first = layers.LayerNormalization(epsilon=1e-6)
        self.second = layers.LayerNormalization(epsilon=1e-6)
        self.dropped = layers.Dropout(rate)

    def call(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        padding = None if mask is None else k.ops.cast(mask[:, None, :], "int32")
        seen = self.attention(inputs, inputs, attention_mask=padding)
        x = self.first(inputs + self.dropped(seen))
        return self.second(x + self.dense(x))


def causal_mask(inputs: tf.Tensor) -> tf.Tensor:
    """[batch, length, length], 1 where a word stands no later than the one that looks."""
    batch, length = k.ops.shape(inputs)[0], k.ops.shape(inputs)[1]
    places = k.ops.arange(length)
    mask = k.ops.cast(places[:, None] >= places[None, :], "int32")
    return k.ops.tile(k.ops.reshape(mask, (1, length, length)), (batch, 1, 1))


class Decoder(layers.Layer):
    """Looks back at its own words, then at those of an encoder where there is one."""

    def __init__(self, width: int, heads: int, hidden: int, *, alone: bool = False) -> None:
        super().__init__()
        self.supports_masking = True
        self.own = layers.MultiHeadAttention(heads, width // heads)
        self.other = None if alone else layers.MultiHeadAttention(heads, width // heads)
        self.dense = k.Sequential([layers.Dense(hidden, activation="relu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization() for _ in range(2 if alone else 3)]

    def call(
        self,
        inputs: tf.Tensor,
        encoded: tf.Tensor | None = None,
        mask: list[tf.Tensor | None] | tf.Tensor | None = None,
    ) -> tf.Tensor:
        x = self.norms[0](inputs + self.own(inputs, inputs, attention_mask=causal_mask(inputs)))
        if self.other is not None:
            x = self.norms[1](x + self.other(x, encoded))
        return self.norms[-1](x + self.dense(x))

"""A causal Transformer language model: pre-norm, learned positions, tied embedding if asked.

The demo trains it on real text; tests take it small. Tied, one table serves lookup and output
head, and its gradient is the dense sum of both uses.
"""

import functools

import keras
import numpy as np
import tensorflow as tf

from tf_wu_shard.errors import OptionError
from tf_wu_shard.models.dense_gradient_embedding import DenseGradientEmbedding


@keras.saving.register_keras_serializable(package="tf_wu_shard")
class LearnedPositions(keras.layers.Layer):
    """Adds one trained vector per position."""

    positions: keras.Variable

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes the [length, width] table of positions, float32."""
        self.positions = self.add_weight(
            shape=input_shape[1:],
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="positions",
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns `inputs` [batch, length, width] plus the positions."""
        return inputs + self.positions


def transformer_lm(
    vocabulary: int = 97,
    length: int = 16,
    width: int = 32,
    heads: int = 2,
    depth: int = 2,
    tied: bool = True,
    dropout: float = 0.0,
    dtype: str = "float32",
) -> keras.Model:
    """Returns an uncompiled model, [batch, length] int32 ids -> [batch, length, vocabulary] logits.

    Args:
        vocabulary: number of token ids.
        length: tokens in a window; fixed, as positions are learned.
        width: of the residual stream; a multiple of `heads`.
        heads: of each attention layer.
        depth: number of blocks, each attention and a feed-forward layer of 4 * width.
        tied: use the lookup's table as the output head's kernel too.
        dropout: rate after each attention and feed-forward layer; 0 leaves the layers out.
        dtype: Keras' dtype policy of every layer, such as "mixed_bfloat16"; logits have the dtype
            that it computes in.

    Raises:
        OptionError: `width` is no multiple of `heads`.
    """
    if width % heads:
        raise OptionError(f"transformer_lm: width {width} must be a multiple of heads {heads}")
    layers = keras.layers
    ids = keras.Input((length,), dtype="int32", name="ids")
    embedding = DenseGradientEmbedding(vocabulary, width, name="embedding", dtype=dtype)
    hidden = LearnedPositions(name="positions", dtype=dtype)(embedding(ids))
    for index in range(depth):
        hidden = _block(hidden, heads, dropout, dtype, f"block_{index}")
    hidden = layers.LayerNormalization(name="final_norm", dtype=dtype)(hidden)
    if tied:
        logits = embedding(hidden, reverse=True)
    else:
        logits = layers.Dense(vocabulary, use_bias=False, name="head", dtype=dtype)(hidden)
    return keras.Model(ids, logits, name="transformer_lm")


def transformer_lm_data(
    examples: int, seed: int = 0, vocabulary: int = 97, length: int = 16
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids, next ids), both [examples, length] int32, of a made-up language.

    In four of five places the next token follows from the present one by a fixed permutation.
    """
    random = np.random.default_rng(seed)
    follower = random.permutation(vocabulary)
    ids = random.integers(0, vocabulary, (examples, length + 1))
    for place in range(length):
        ruled = random.random(examples) < 0.8
        ids[:, place + 1] = np.where(ruled, follower[ids[:, place]], ids[:, place + 1])
    return ids[:, :-1].astype(np.int32), ids[:, 1:].astype(np.int32)


def _block(hidden: tf.Tensor, heads: int, dropout: float, dtype: str, name: str) -> tf.Tensor:
    """One pre-norm block.

    Attention has no biases: softmax does not see a shift of all its scores, so the gradient of a
    key bias is zero by mathematics and only noise would train it.
    """
    layers = keras.layers
    width = hidden.shape[-1]
    normed = layers.LayerNormalization(name=f"{name}_attention_norm", dtype=dtype)(hidden)
    attended = layers.MultiHeadAttention(
        heads, width // heads, use_bias=False, name=f"{name}_attention", dtype=dtype
    )(normed, normed, use_causal_mask=True)
    if dropout:
        attended = layers.Dropout(dropout, seed=11, dtype=dtype)(attended)
    hidden = layers.Add(name=f"{name}_attention_add", dtype=dtype)([hidden, attended])
    normed = layers.LayerNormalization(name=f"{name}_feed_norm", dtype=dtype)(hidden)
    dense = functools.partial(layers.Dense, dtype=dtype)
    fed = dense(4 * width, activation="gelu", name=f"{name}_feed_in")(normed)
    fed = dense(width, name=f"{name}_feed_out")(fed)
    if dropout:
        fed = layers.Dropout(dropout, seed=13, dtype=dtype)(fed)
    return layers.Add(name=f"{name}_feed_add", dtype=dtype)([hidden, fed])

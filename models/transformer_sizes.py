"""The two Transformers of Vaswani et al. (2017), base and big, and a small part of base.

Their widths and heads; encoder and decoder are one stack here, with as many blocks as make 64 and
210 million parameters with one tied table of 32,768 tokens. They compute in bfloat16 and keep
float32 weights, as on an accelerator with bfloat16 matrix units.
"""

import keras
import numpy as np

from tf_wu_shard.models.transformer_lm import transformer_lm, transformer_lm_data

_VOCABULARY = 32_768
_SMALL_VOCABULARY = 8_192
_LENGTH = 128
_DTYPE = "mixed_bfloat16"


def transformer_small(
    vocabulary: int = _SMALL_VOCABULARY, length: int = _LENGTH, depth: int = 2
) -> keras.Model:
    """Returns base with 2 of its 15 blocks and a quarter of its tokens: 10.6 million parameters.

    For a look at what the TPU compiler makes of a step, in seconds. [batch, length] int32 ids ->
    [batch, length, vocabulary] bfloat16 logits.

    Args:
        vocabulary: number of token ids.
        length: tokens in a window.
        depth: number of blocks.
    """
    return transformer_base(vocabulary, length, depth)


def transformer_base(
    vocabulary: int = _VOCABULARY, length: int = _LENGTH, depth: int = 15
) -> keras.Model:
    """Returns an uncompiled model of width 512, 64 million parameters at its default sizes.

    [batch, length] int32 ids -> [batch, length, vocabulary] bfloat16 logits.

    Args:
        vocabulary: number of token ids.
        length: tokens in a window.
        depth: number of blocks.
    """
    return transformer_lm(vocabulary, length, width=512, heads=8, depth=depth, dtype=_DTYPE)


def transformer_big(
    vocabulary: int = _VOCABULARY, length: int = _LENGTH, depth: int = 14
) -> keras.Model:
    """Returns an uncompiled model of width 1024, 210 million parameters at its default sizes.

    [batch, length] int32 ids -> [batch, length, vocabulary] bfloat16 logits.

    Args:
        vocabulary: number of token ids.
        length: tokens in a window.
        depth: number of blocks.
    """
    return transformer_lm(vocabulary, length, width=1024, heads=16, depth=depth, dtype=_DTYPE)


def transformer_data(
    examples: int, seed: int = 0, vocabulary: int = _VOCABULARY, length: int = _LENGTH
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (ids, next ids), both [examples, length] int32, of a made-up language."""
    return transformer_lm_data(examples, seed, vocabulary, length)


def transformer_small_data(
    examples: int, seed: int = 0, vocabulary: int = _SMALL_VOCABULARY, length: int = _LENGTH
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same for fewer tokens."""
    return transformer_lm_data(examples, seed, vocabulary, length)

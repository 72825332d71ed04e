"""Cutting a tensor into the shards of a layout and joining them again.

Answers: shard `i` of a value, with a buffer of its own; the value that a list of
shards stands for. It holds no state and does not know what the values mean.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
import tensorflow as tf

from tf_wu_shard.layout import TILE, AnyLayout, Layout, TileLayout

# Eager ops whose inputs are copied over from another device mix these up when several threads run
# such ops (seen with TensorFlow 2.21 and two logical CPUs). Here all constants come from the first.
_EAGER_OPS = threading.RLock()


def _alone() -> AbstractContextManager[object]:
    """Keeps other threads from cutting and joining; there is nothing to keep while tracing."""
    return _EAGER_OPS if tf.executing_eagerly() else contextlib.nullcontext()


def _numbers(*numbers: int) -> np.ndarray:
    """Numbers as an op takes them fastest: a list goes through much of TensorFlow's Python code.

    Of int32 if they fit: that stays on the host wherever the op runs, where kernels want sizes.
    """
    return np.array(numbers, np.int32 if max(numbers, default=0) < 2**31 else np.int64)


def cut(value: tf.Tensor, layout: AnyLayout, shard: int) -> tf.Tensor:
    """Copies one shard out of a value.

    A slice on an aligned boundary shares its buffer with the whole, and a variable that is
    assigned such a slice keeps the whole alive: hence the copy.

    Args:
        value: A tensor of shape `layout.shape`.
        layout: The cut.
        shard: Which shard.

    Returns:
        A tensor of shape `layout.shard_shape(shard)`, sharing no memory with `value`.
    """
    if isinstance(layout, TileLayout):
        return cut_all(value, layout)[shard]
    start, stop = layout.bounds(shard)
    with _alone():
        # Raw ops: `value[start:stop]` costs ten times as much, and this runs for every shard.
        vector = tf.raw_ops.Reshape(tensor=value, shape=_numbers(-1))
        # Both of one type.
        begin, size = _numbers(start, stop - start).reshape(2, 1)
        piece = tf.raw_ops.Slice(input=vector, begin=begin, size=size)
        return tf.raw_ops.DeepCopy(x=_in_shape(piece, layout, shard))


def cut_all(value: tf.Tensor, layout: AnyLayout) -> list[tf.Tensor]:
    """Copies all shards out of a value, in one pass.

    Args:
        value: A tensor of shape `layout.shape`.
        layout: The cut.

    Returns:
        For each shard what `cut` returns.
    """
    with _alone():
        if isinstance(layout, TileLayout):
            return _cut_rows(value, layout)
        return _cut_flat(value, layout)


def _cut_flat(value: tf.Tensor, layout: Layout) -> list[tf.Tensor]:
    bounds = [layout.bounds(shard) for shard in range(layout.num_shards)]
    sizes = _numbers(*(stop - start for start, stop in bounds))
    vector = tf.raw_ops.Reshape(tensor=value, shape=_numbers(-1))
    if layout.num_shards == 1:
        return [tf.raw_ops.DeepCopy(x=_in_shape(vector, layout, 0))]
    # SplitV shares its operand's buffer only where one element fills whole alignment units.
    pieces = tf.raw_ops.SplitV(value=vector, size_splits=sizes, axis=0, num_split=len(sizes))
    return [_in_shape(piece, layout, shard) for shard, piece in enumerate(pieces)]


def _in_shape(piece: tf.Tensor, layout: Layout, shard: int) -> tf.Tensor:
    """A shard's elements, given as a vector, in the shape of the shard."""
    shape = layout.shard_shape(shard)
    return piece if len(shape) == 1 else tf.raw_ops.Reshape(tensor=piece, shape=_numbers(*shape))


def join(shards: Sequence[tf.Tensor], layout: AnyLayout) -> tf.Tensor:
    """Puts the shards of a value together.

    Args:
        shards: One tensor for each shard of the layout.
        layout: The cut.

    Returns:
        The value, shape `layout.shape`.
    """
    with _alone():
        if isinstance(layout, TileLayout):
            return _joined_rows(shards, layout)
        held = [shards[shard] for shard in layout.holders] or list(shards)
        vector = held[0] if len(held) == 1 else tf.concat(held, 0)
        return tf.reshape(vector, layout.shape)


def _cut_rows(value: tf.Tensor, layout: TileLayout) -> list[tf.Tensor]:
    # Raw ops here too: this runs for every weight and slot of a TPU program.
    if layout.order != tuple(range(len(layout.order))):
        value = tf.raw_ops.Transpose(x=value, perm=_numbers(*layout.order))
    rows = tf.raw_ops.Reshape(tensor=value, shape=_numbers(-1))
    if layout.padding:
        # Padded rows follow all others, so that the padding is at the end of the elements too.
        rows = tf.raw_ops.Pad(input=rows, paddings=_numbers(0, layout.padding).reshape(1, 2))
    if layout.tile_shards > 1:
        of_tiles = _numbers(-1, TILE[0], layout.columns // TILE[1], TILE[1])
        tiles = tf.raw_ops.Reshape(tensor=rows, shape=of_tiles)
        tiles = tf.raw_ops.Transpose(x=tiles, perm=_numbers(0, 2, 1, 3))
        rows = tf.raw_ops.Reshape(tensor=tiles, shape=_numbers(-1, TILE[1]))
    else:
        rows = tf.raw_ops.Reshape(tensor=rows, shape=_numbers(-1, layout.columns))
    shards = tf.raw_ops.Split(axis=0, value=rows, num_split=layout.num_shards)
    return [tf.raw_ops.DeepCopy(x=shards[number]) for number in layout.held]


def _joined_rows(shards: Sequence[tf.Tensor], layout: TileLayout) -> tf.Tensor:
    ordered = [shards[layout.held.index(number)] for number in range(layout.num_shards)]
    matrix = tf.concat(ordered, 0)
    if layout.tile_shards > 1:
        tiles = tf.reshape(matrix, (-1, layout.columns // TILE[1], *TILE))
        matrix = tf.reshape(tf.transpose(tiles, (0, 2, 1, 3)), (-1, layout.columns))
    back = [layout.order.index(dimension) for dimension in range(len(layout.order))]
    elements = tf.reshape(matrix, (-1,))[: layout.size]
    return tf.transpose(tf.reshape(elements, layout.ordered_shape), back)

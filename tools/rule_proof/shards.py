"""Tensors cut into shards as a layout says, and put together again, with NumPy.

The padding of a shard holds what is most likely to be noticed where it is looked at: NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tf_wu_shard.layout import (
    ALIGNMENT_BYTES,
    TILE,
    AnyLayout,
    Layout,
    TileLayout,
    flat_layout,
    tile_layout,
)


def cut(
    array: np.ndarray, layout: AnyLayout, shard: int, padding: object | None = None
) -> np.ndarray:
    """What replica `shard` holds of an array of `layout.size` elements.

    Args:
        array: The array.
        layout: How it is cut.
        shard: Which shard.
        padding: What the padding holds; None for `garbage`.
    """
    if isinstance(layout, Layout):
        start, stop = layout.bounds(shard)
        return array.reshape(-1)[start:stop].reshape(layout.shard_shape(shard))
    ordered = array.reshape(layout.shape).transpose(layout.order)
    # Padded rows follow all others, so that the padding is at the end of the elements too.
    filled = garbage(array.dtype) if padding is None else padding
    elements = np.full(layout.size + layout.padding, filled, array.dtype)
    elements[: layout.size] = ordered.reshape(-1)
    padded = elements.reshape(layout.padded_rows, layout.columns)
    if layout.tile_shards > 1:
        tiles = padded.reshape(-1, TILE[0], layout.columns // TILE[1], TILE[1])
        padded = tiles.transpose(0, 2, 1, 3).reshape(-1, TILE[1])
    return padded.reshape(layout.num_shards, *layout.shard_shape(shard))[layout.held[shard]]


def together(shards: Sequence[np.ndarray], layout: AnyLayout) -> np.ndarray:
    """The whole array, in `layout.shape`, from every replica's shard; padding is dropped."""
    if isinstance(layout, Layout):
        return np.concatenate(shards).reshape(layout.shape)
    runs = [shards[layout.held.index(run)] for run in range(layout.num_shards)]
    matrix = np.concatenate(runs)
    if layout.tile_shards > 1:
        tiles = matrix.reshape(-1, layout.columns // TILE[1], *TILE)
        matrix = tiles.transpose(0, 2, 1, 3).reshape(-1, layout.columns)
    ordered = matrix.reshape(-1)[: layout.size].reshape(layout.ordered_shape)
    return ordered.transpose(np.argsort(layout.order))


def garbage(dtype: np.dtype) -> object:
    """What padding of an element type holds."""
    # An integer's padding is no zero: a CPU's integer division by it raises, a TPU's does not.
    return 7 if dtype.kind in "iu" else True if dtype.kind == "b" else np.nan


def layouts(
    random: np.random.Generator, shape: tuple[int, ...], item_bytes: int
) -> list[AnyLayout]:
    """Some cuts of a tensor over random numbers of replicas: flat, by rows, by tiles, flattened.

    Those that pad are for tensors of whole vector registers only: an element that the whole tensor
    has in a kernel's scalar loop is in the vectorised one with padding behind it, and some kernels
    (`Exp`) round differently there. On a TPU there is one loop.
    """
    found: list[AnyLayout] = [
        flat_layout(shape, int(n), item_bytes) for n in {2, *random.integers(3, 10, 2)}
    ]
    if shape and math.prod(shape) * item_bytes % ALIGNMENT_BYTES == 0:
        for axes in ((int(random.integers(2, 6)),), (2, 2), (2, 4)):
            held = tuple(int(h) for h in random.permutation(int(np.prod(axes))))
            found.append(tile_layout(shape, axes, held))
    return [lay for lay in found if isinstance(lay, (Layout, TileLayout)) and lay.size]

"""Tensors side by side, each in columns of its own, written in place.

The few array ops that a TPU's buckets are made of; each works on tensors of any rank whose last
dimension is the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import TILE, TileLayout


def beginnings(layouts: Sequence[TileLayout]) -> tuple[list[int], int]:
    """Where each tensor's columns begin in a bucket, at tiles, and how wide the bucket is."""
    if len(layouts) == 1:
        return [0], layouts[0].columns
    starts, width = [], 0
    for layout in layouts:
        starts.append(width)
        width += math.ceil(layout.columns / TILE[1]) * TILE[1]
    return starts, width


def side_by_side(
    at: Emitter,
    tensors: Sequence[Value],
    starts: Sequence[int],
    shape: tuple[int, ...],
    fill: Value | None = None,
) -> Value:
    """Tensors of equal leading dimensions in the columns of one.

    The compiler would see through what they are written over, take each for a padded tensor and add
    these up, one pass over the whole for each.

    Args:
        at: Where to emit.
        tensors: What to write.
        starts: The column at which each begins.
        shape: The shape of the one.
        fill: A scalar that they are written over; zero if there is none.
    """
    if len(tensors) == 1:
        return held_apart(at, tensors[0])
    bucket = held_apart(at, filled(at, shape, fill or zero_like(at, tensors[0])))
    for tensor, start in zip(tensors, starts, strict=True):
        bucket = placed(at, bucket, tensor, (*(0 for _ in shape[1:]), start))
    return bucket


def held_apart(at: Emitter, value: Value) -> Value:
    """`value`, of whose making the compiler knows nothing where it is used."""
    return at.op("XlaOptimizationBarrier", [value], "barrier")


def zero_like(at: Emitter, value: Value) -> Value:
    """The scalar zero of a value's element type."""
    return at.constant(0, at.dtype(value))


def filled(at: Emitter, shape: tuple[int, ...], number: Value) -> Value:
    """A tensor of one number."""
    return at.op("Fill", [at.constant(list(shape)), number], "filled")


def first_element(at: Emitter, matrix: Value) -> Value:
    """The first element of a matrix, as a scalar."""
    return at.reshape(at.block(matrix, (0, 0), (1, 1), "first"), (), "first")


def placed(at: Emitter, bucket: Value, tensor: Value, place: tuple[int, ...]) -> Value:
    """`bucket` with `tensor` written over the part that begins at `place`."""
    return at.op("XlaDynamicUpdateSlice", [bucket, tensor, at.constant(list(place))], "place")


def own_begin(at: Emitter, layout: TileLayout) -> Value:
    """Where the replica's shard begins among all, as rows and columns; known when it runs."""
    rows = layout.shard_shape(0)[0]
    number = at.op("XlaReplicaId", [], "replica_id")
    held, axis = at.constant([h * rows for h in layout.held]), at.constant(0)
    first = at.op("GatherV2", [held, number, axis], "first_row")
    return at.op("Pack", [first, axis], "begin", axis=0)


def tiles_of_rows(at: Emitter, matrix: Value, width: int, count: int) -> Value:
    """Whole tiles one above the other: by row of tiles, then by column, then by tensor.

    Args:
        at: Where to emit.
        matrix: Some tensors side by side, rows a multiple of a tile's.
        width: The columns of each of them, a multiple of a tile's.
        count: How many there are.
    """
    shape = (-1, TILE[0], count, width // TILE[1], TILE[1])
    apart = at.reshape(matrix, shape, "tiles")
    return at.reshape(at.transpose(apart, (0, 3, 2, 1, 4), "by_tile"), (-1, TILE[1]), "tiles")


def rows_of_tiles(at: Emitter, tiles: Value, width: int, count: int) -> Value:
    """The tensors side by side whose tiles `tiles_of_rows` put one above the other."""
    apart = at.reshape(tiles, (-1, width // TILE[1], count, *TILE), "tiles")
    return at.reshape(at.transpose(apart, (0, 3, 2, 1, 4), "by_row"), (-1, count * width), "rows")


def tiles_apart(at: Emitter, tiles: Value, layouts: Sequence[TileLayout]) -> list[Value]:
    """Each tensor's tiles, one above the other, out of the tiles of all."""
    rows = layouts[0].shard_shape(0)[0]
    if len(layouts) == 1:
        return [tiles]
    shape = (rows // TILE[0], len(layouts), *TILE)
    apart = at.reshape(tiles, shape, "tiles")
    found = []
    for number in range(len(layouts)):
        own = at.block(apart, (0, number, 0, 0), (shape[0], 1, *TILE), "shard")
        found.append(at.reshape(own, (rows, TILE[1]), "shard"))
    return found


def tiles_together(at: Emitter, shards: Sequence[Value], layouts: Sequence[TileLayout]) -> Value:
    """The tiles of all tensors out of each one's, as `tiles_apart` found them."""
    rows = layouts[0].shard_shape(0)[0]
    if len(shards) == 1:
        return shards[0]
    bucket = filled(at, (rows // TILE[0], len(shards), *TILE), zero_like(at, shards[0]))
    for number, shard in enumerate(shards):
        apart = at.reshape(shard, (rows // TILE[0], 1, *TILE), "tiles")
        bucket = placed(at, bucket, apart, (0, number, 0, 0))
    return at.reshape(bucket, (rows * len(shards), TILE[1]), "tiles")


def whole_of_rows(at: Emitter, matrix: Value, layout: TileLayout) -> Value:
    """The tensor, in `layout.shape`, of all its shards one above the other, without padding."""
    if layout.tile_shards > 1:
        matrix = rows_of_tiles(at, matrix, layout.columns, 1)
    held = matrix
    if layout.flattened:
        held = at.run(at.flat(matrix, "elements"), 0, layout.size, "held")
    elif layout.padding:
        held = at.block(matrix, (0, 0), (layout.rows, layout.columns), "held")
    return unordered(at, at.reshape(held, layout.ordered_shape, "ordered"), layout)


def ordered(at: Emitter, value: Value, layout: TileLayout) -> Value:
    """A tensor of the layout's elements with its dimensions in the layout's order."""
    return at.transpose(at.reshape(value, layout.shape, "shape"), layout.order, "order")


def unordered(at: Emitter, value: Value, layout: TileLayout) -> Value:
    """The tensor, in `layout.shape`, that `ordered` put into its layout's order."""
    back = [layout.order.index(dimension) for dimension in range(len(layout.order))]
    return at.transpose(value, back, "whole")


def rows_of_whole(at: Emitter, tensor: Value, layout: TileLayout) -> Value:
    """All shards of a tensor one above the other, padding and all; see `whole_of_rows`."""
    shape = (-1,) if layout.flattened else (layout.rows, layout.columns)
    matrix = at.reshape(ordered(at, tensor, layout), shape, "matrix")
    if layout.padding:
        after = layout.padding if layout.flattened else layout.padded_rows - layout.rows
        ends = at.constant([[0, after], [0, 0]][: len(shape)])
        matrix = at.op("Pad", [matrix, ends], "pad")
    matrix = at.reshape(matrix, (layout.padded_rows, layout.columns), "padded")
    if layout.tile_shards > 1:
        matrix = tiles_of_rows(at, matrix, layout.columns, 1)
    return matrix

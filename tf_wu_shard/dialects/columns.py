"""Tensors side by side, each in columns of its own, written in place.

The few array ops that a TPU's buckets are made of; each works on tensors of any rank whose last
dimension is the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import TILE, RowLayout

_INT32 = 3


def beginnings(layouts: Sequence[RowLayout]) -> tuple[list[int], int]:
    """Where each tensor's columns begin in a bucket, at tiles, and how wide the bucket is."""
    if len(layouts) == 1:
        return [0], layouts[0].columns
    starts, width = [], 0
    for layout in layouts:
        starts.append(width)
        width += math.ceil(layout.columns / TILE[1]) * TILE[1]
    return starts, width


def side_by_side(
    builder: GraphBuilder,
    tensors: Sequence[Value],
    starts: Sequence[int],
    shape: tuple[int, ...],
    dtype: int,
    scope: str,
    fill: Value | None = None,
) -> Value:
    """Tensors of equal leading dimensions in the columns of one.

    The compiler would see through what they are written over, take each for a padded tensor and add
    these up, one pass over the whole for each.

    Args:
        builder: Where to emit.
        tensors: What to write.
        starts: The column at which each begins.
        shape: The shape of the one.
        dtype: The element type.
        scope: Name scope of the emitted ops.
        fill: A scalar that they are written over; zero if there is none.
    """
    if len(tensors) == 1:
        return held_apart(builder, tensors[0], dtype, scope)
    bucket = held_apart(builder, filled(builder, shape, dtype, scope, fill), dtype, scope)
    for tensor, start in zip(tensors, starts, strict=True):
        place = (*(0 for _ in shape[1:]), start)
        bucket = placed(builder, bucket, tensor, place, dtype, scope)
    return bucket


def held_apart(builder: GraphBuilder, value: Value, dtype: int, scope: str) -> Value:
    """`value`, of whose making the compiler knows nothing where it is used."""
    name = f"{scope}/barrier"
    barrier = builder.op("XlaOptimizationBarrier", [value], name=name, device="")
    attr: Any = builder.nodes[-1].attr
    attr["T"].list.type.append(dtype)
    return barrier


def filled(
    builder: GraphBuilder,
    shape: tuple[int, ...],
    dtype: int,
    scope: str,
    fill: Value | None = None,
) -> Value:
    """A tensor of one number, zero if none is given."""
    number = fill or builder.constant(0, device="", dtype=dtype)
    dims = builder.constant(list(shape), device="")
    types = {"T": dtype, "index_type": _INT32}
    return builder.op("Fill", [dims, number], name=f"{scope}/filled", device="", types=types)


def first_element(builder: GraphBuilder, matrix: Value, dtype: int, scope: str) -> Value:
    """The first element of a matrix, as a scalar."""
    corner = block(builder, matrix, (0, 0), (1, 1), dtype, f"{scope}/first")
    return plain_ops.reshape(builder, corner, (), dtype, "", f"{scope}/first")


def placed(
    builder: GraphBuilder,
    bucket: Value,
    tensor: Value,
    place: tuple[int, ...],
    dtype: int,
    scope: str,
) -> Value:
    """`bucket` with `tensor` written over the part that begins at `place`."""
    begin = builder.constant(list(place), device="")
    inputs, types = [bucket, tensor, begin], {"T": dtype, "Tindices": _INT32}
    name = f"{scope}/place"
    return builder.op("XlaDynamicUpdateSlice", inputs, name=name, device="", types=types)


def block(
    builder: GraphBuilder,
    tensor: Value,
    begin: tuple[int, ...],
    size: tuple[int, ...],
    dtype: int,
    name: str,
) -> Value:
    """The part of a tensor that begins at `begin` and has shape `size`."""
    start = builder.constant(list(begin), device="")
    shape = builder.constant(list(size), device="")
    types = {"T": dtype, "Index": _INT32}
    return builder.op("Slice", [tensor, start, shape], name=name, device="", types=types)


def own_begin(builder: GraphBuilder, layout: RowLayout, name: str) -> Value:
    """Where the replica's shard begins among all, as rows and columns; known when it runs."""
    rows = layout.shard_shape(0)[0]
    number = builder.op("XlaReplicaId", [], name=f"{name}/replica_id", device="")
    held = builder.constant([h * rows for h in layout.held], device="")
    axis = builder.constant(0, device="")
    types = {"Tparams": _INT32, "Tindices": _INT32, "Taxis": _INT32}
    inputs = [held, number, axis]
    first = builder.op("GatherV2", inputs, name=f"{name}/first_row", device="", types=types)
    pack: dict[str, Any] = {"types": {"T": _INT32}, "ints": {"N": 2, "axis": 0}}
    return builder.op("Pack", [first, axis], name=f"{name}/begin", device="", **pack)


def transposed(
    builder: GraphBuilder, value: Value, order: tuple[int, ...], dtype: int, name: str
) -> Value:
    """A tensor with its dimensions in another order."""
    if order == tuple(range(len(order))):
        return value
    permutation = builder.constant(list(order), device="")
    types = {"T": dtype, "Tperm": _INT32}
    return builder.op("Transpose", [value, permutation], name=name, device="", types=types)


def tiles_of_rows(
    builder: GraphBuilder, matrix: Value, width: int, count: int, dtype: int, scope: str
) -> Value:
    """Whole tiles one above the other: by row of tiles, then by column, then by tensor.

    Args:
        builder: Where to emit.
        matrix: Some tensors side by side, rows a multiple of a tile's.
        width: The columns of each of them, a multiple of a tile's.
        count: How many there are.
        dtype: Their element type.
        scope: Name scope of the emitted ops.
    """
    shape = (-1, TILE[0], count, width // TILE[1], TILE[1])
    apart = plain_ops.reshape(builder, matrix, shape, dtype, "", f"{scope}/tiles")
    ordered = transposed(builder, apart, (0, 3, 2, 1, 4), dtype, f"{scope}/by_tile")
    return plain_ops.reshape(builder, ordered, (-1, TILE[1]), dtype, "", f"{scope}/tiles")


def rows_of_tiles(
    builder: GraphBuilder, tiles: Value, width: int, count: int, dtype: int, scope: str
) -> Value:
    """The tensors side by side whose tiles `tiles_of_rows` put one above the other."""
    shape = (-1, width // TILE[1], count, *TILE)
    apart = plain_ops.reshape(builder, tiles, shape, dtype, "", f"{scope}/tiles")
    ordered = transposed(builder, apart, (0, 3, 2, 1, 4), dtype, f"{scope}/by_row")
    return plain_ops.reshape(builder, ordered, (-1, count * width), dtype, "", f"{scope}/rows")


def tiles_apart(
    builder: GraphBuilder, tiles: Value, layouts: Sequence[RowLayout], dtype: int, scope: str
) -> list[Value]:
    """Each tensor's tiles, one above the other, out of the tiles of all."""
    rows = layouts[0].shard_shape(0)[0]
    if len(layouts) == 1:
        return [tiles]
    shape = (rows // TILE[0], len(layouts), *TILE)
    apart = plain_ops.reshape(builder, tiles, shape, dtype, "", f"{scope}/tiles")
    size = (shape[0], 1, *TILE)
    found = []
    for number in range(len(layouts)):
        own = block(builder, apart, (0, number, 0, 0), size, dtype, f"{scope}/shard")
        shard = (rows, TILE[1])
        found.append(plain_ops.reshape(builder, own, shard, dtype, "", f"{scope}/shard"))
    return found


def tiles_together(
    builder: GraphBuilder,
    shards: Sequence[Value],
    layouts: Sequence[RowLayout],
    dtype: int,
    scope: str,
) -> Value:
    """The tiles of all tensors out of each one's, as `tiles_apart` found them."""
    rows = layouts[0].shard_shape(0)[0]
    if len(shards) == 1:
        return shards[0]
    bucket = filled(builder, (rows // TILE[0], len(shards), *TILE), dtype, scope)
    for number, shard in enumerate(shards):
        size = (rows // TILE[0], 1, *TILE)
        apart = plain_ops.reshape(builder, shard, size, dtype, "", f"{scope}/tiles")
        bucket = placed(builder, bucket, apart, (0, number, 0, 0), dtype, scope)
    shape = (rows * len(shards), TILE[1])
    return plain_ops.reshape(builder, bucket, shape, dtype, "", f"{scope}/tiles")


def whole_of_rows(
    builder: GraphBuilder, matrix: Value, layout: RowLayout, dtype: int, scope: str
) -> Value:
    """The tensor, in `layout.shape`, of all its shards one above the other, without padding."""
    if layout.tile_shards > 1:
        matrix = rows_of_tiles(builder, matrix, layout.columns, 1, dtype, scope)
    held = matrix
    if layout.flattened:
        elements = plain_ops.flat(builder, matrix, dtype, "", f"{scope}/elements")
        held = plain_ops.run(builder, elements, 0, layout.size, dtype, "", f"{scope}/held")
    elif layout.padding:
        size = (layout.rows, layout.columns)
        held = block(builder, matrix, (0, 0), size, dtype, f"{scope}/held")
    shape = layout.ordered_shape
    ordered = plain_ops.reshape(builder, held, shape, dtype, "", f"{scope}/ordered")
    back = tuple(layout.order.index(dimension) for dimension in range(len(layout.order)))
    return transposed(builder, ordered, back, dtype, f"{scope}/whole")


def rows_of_whole(
    builder: GraphBuilder, tensor: Value, layout: RowLayout, dtype: int, scope: str
) -> Value:
    """All shards of a tensor one above the other, padding and all; see `whole_of_rows`."""
    shaped = plain_ops.reshape(builder, tensor, layout.shape, dtype, "", f"{scope}/shape")
    ordered = transposed(builder, shaped, layout.order, dtype, f"{scope}/order")
    shape = (-1,) if layout.flattened else (layout.rows, layout.columns)
    matrix = plain_ops.reshape(builder, ordered, shape, dtype, "", f"{scope}/matrix")
    if layout.padding:
        after = layout.padding if layout.flattened else layout.padded_rows - layout.rows
        ends = builder.constant([[0, after], [0, 0]][: len(shape)], device="")
        types = {"T": dtype, "Tpaddings": _INT32}
        matrix = builder.op("Pad", [matrix, ends], name=f"{scope}/pad", device="", types=types)
    shape = (layout.padded_rows, layout.columns)
    matrix = plain_ops.reshape(builder, matrix, shape, dtype, "", f"{scope}/padded")
    if layout.tile_shards > 1:
        matrix = tiles_of_rows(builder, matrix, layout.columns, 1, dtype, scope)
    return matrix

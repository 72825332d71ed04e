"""Tensors side by side, each in columns of its own, written in place.

The few array ops that a TPU's buckets are made of; each works on tensors of any rank whose last
dimension is the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.view import Value
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
) -> Value:
    """Tensors of equal leading dimensions in the columns of one, the rest zeros."""
    if len(tensors) == 1:
        return tensors[0]
    bucket = zeros(builder, shape, dtype, scope)
    for tensor, start in zip(tensors, starts, strict=True):
        bucket = placed(builder, bucket, tensor, start, len(shape), dtype, scope)
    return bucket


def zeros(builder: GraphBuilder, shape: tuple[int, ...], dtype: int, scope: str) -> Value:
    """A tensor of zeros."""
    zero = builder.constant(0, device="", dtype=dtype)
    dims = builder.constant(list(shape), device="")
    types = {"T": dtype, "index_type": _INT32}
    return builder.op("Fill", [dims, zero], name=f"{scope}/zeros", device="", types=types)


def placed(
    builder: GraphBuilder,
    bucket: Value,
    tensor: Value,
    start: int,
    rank: int,
    dtype: int,
    scope: str,
) -> Value:
    """`bucket` with `tensor` written over its columns from `start` on."""
    place = builder.constant([*(0 for _ in range(rank - 1)), start], device="")
    inputs, types = [bucket, tensor, place], {"T": dtype, "Tindices": _INT32}
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


def transposed(
    builder: GraphBuilder, value: Value, order: tuple[int, ...], dtype: int, name: str
) -> Value:
    """A tensor with its dimensions in another order."""
    if order == tuple(range(len(order))):
        return value
    permutation = builder.constant(list(order), device="")
    types = {"T": dtype, "Tperm": _INT32}
    return builder.op("Transpose", [value, permutation], name=name, device="", types=types)

"""Flattened tensors, one above the other in each replica's run of a bucket's rows.

The few array ops that a TPU's buckets of them are made of. A bucket is [num_shards * height, 128]:
each run of `height` rows, one for each shard, holds that shard of every tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.dialects import axis_ops, columns, plain_ops
from tf_wu_shard.dialects.columns import block
from tf_wu_shard.dialects.torus import Groups
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import TILE, RowLayout

_INT32 = 3


def reduce_scatter(
    builder: GraphBuilder,
    ordered: Sequence[Value],
    layouts: Sequence[RowLayout],
    axes: Sequence[Groups],
    dtype: int,
    scope: str,
    fill: Value | None,
) -> Value:
    """Sums tensors over the replicas.

    Args:
        builder: Where to emit.
        ordered: The tensors, their dimensions in the order of their layouts.
        layouts: How each is cut.
        axes: The groups of replicas along each axis of the torus.
        dtype: The element type of all of them.
        scope: Name scope of the emitted ops.
        fill: A scalar that they are written over; zero if there is none.

    Returns:
        Each replica's run of the bucket's rows, for `runs_apart`.
    """
    matrices = [
        flattened(builder, value, layout, dtype, scope)
        for value, layout in zip(ordered, layouts, strict=True)
    ]
    runs = layouts[0].num_shards
    bucket = runs_together(builder, matrices, layouts, runs, dtype, scope, fill)
    shape = (runs * _height(layouts), TILE[1])
    return axis_ops.reduce_scatter(builder, bucket, shape, axes, dtype, scope)


def all_gather(
    builder: GraphBuilder,
    own: Sequence[Value],
    layouts: Sequence[RowLayout],
    axes: Sequence[Groups],
    dtype: int,
    scope: str,
) -> list[Value]:
    """Puts tensors together again out of each replica's shards.

    Returns:
        The tensors, their dimensions in the order of their layouts.
    """
    whole = runs_together(builder, own, layouts, 1, dtype, scope)
    rows = _height(layouts)
    for groups in reversed(axes):
        whole = axis_ops.all_gather(builder, whole, (rows, TILE[1]), groups, dtype, scope)
        rows *= len(groups[0])
    matrices = runs_apart(builder, whole, layouts, layouts[0].num_shards, dtype, scope)
    return [
        unflattened(builder, matrix, layout, dtype, scope)
        for matrix, layout in zip(matrices, layouts, strict=True)
    ]


def flattened(
    builder: GraphBuilder, ordered: Value, layout: RowLayout, dtype: int, scope: str
) -> Value:
    """A tensor, its dimensions in its layout's order, as a matrix of padded rows."""
    vector = plain_ops.flat(builder, ordered, dtype, "", f"{scope}/elements")
    if layout.padding:
        ends = builder.constant([[0, layout.padding]], device="")
        types = {"T": dtype, "Tpaddings": _INT32}
        vector = builder.op("Pad", [vector, ends], name=f"{scope}/pad", device="", types=types)
    shape = (layout.padded_rows, TILE[1])
    return plain_ops.reshape(builder, vector, shape, dtype, "", f"{scope}/tiles")


def unflattened(
    builder: GraphBuilder, matrix: Value, layout: RowLayout, dtype: int, scope: str
) -> Value:
    """What `flattened` made a matrix of."""
    vector = plain_ops.flat(builder, matrix, dtype, "", f"{scope}/elements")
    if layout.padding:
        vector = plain_ops.run(builder, vector, 0, layout.size, dtype, "", f"{scope}/held")
    shape = layout.ordered_shape
    return plain_ops.reshape(builder, vector, shape, dtype, "", f"{scope}/ordered")


def runs_together(
    builder: GraphBuilder,
    matrices: Sequence[Value],
    layouts: Sequence[RowLayout],
    num_runs: int,
    dtype: int,
    scope: str,
    fill: Value | None = None,
) -> Value:
    """Tensors, or one run of each, one above the other in every run.

    Args:
        builder: Where to emit.
        matrices: For each tensor `num_runs` runs of its rows.
        layouts: How each is cut.
        num_runs: How many runs there are of each.
        dtype: Their element type.
        scope: Name scope of the emitted ops.
        fill: A scalar that they are written over; zero if there is none.
    """
    if len(matrices) == 1:
        return matrices[0]
    high, start = _height(layouts), 0
    empty = columns.filled(builder, (num_runs, high, TILE[1]), dtype, scope, fill)
    bucket = columns.held_apart(builder, empty, dtype, scope)
    for matrix, layout in zip(matrices, layouts, strict=True):
        shape = (num_runs, layout.run_rows, TILE[1])
        runs = plain_ops.reshape(builder, matrix, shape, dtype, "", f"{scope}/runs")
        bucket = columns.placed(builder, bucket, runs, (0, start, 0), dtype, scope)
        start += layout.run_rows
    rows = (num_runs * high, TILE[1])
    return plain_ops.reshape(builder, bucket, rows, dtype, "", f"{scope}/rows")


def runs_apart(
    builder: GraphBuilder,
    bucket: Value,
    layouts: Sequence[RowLayout],
    num_runs: int,
    dtype: int,
    scope: str,
) -> list[Value]:
    """Each tensor's runs of rows, out of what `runs_together` made of them."""
    if len(layouts) == 1:
        return [bucket]
    shape = (num_runs, _height(layouts), TILE[1])
    runs = plain_ops.reshape(builder, bucket, shape, dtype, "", f"{scope}/runs")
    found, start = [], 0
    for layout in layouts:
        size = (num_runs, layout.run_rows, TILE[1])
        own = block(builder, runs, (0, start, 0), size, dtype, f"{scope}/run")
        rows = (num_runs * layout.run_rows, TILE[1])
        found.append(plain_ops.reshape(builder, own, rows, dtype, "", f"{scope}/rows"))
        start += layout.run_rows
    return found


def _height(layouts: Sequence[RowLayout]) -> int:
    """The rows of a run."""
    return sum(layout.run_rows for layout in layouts)

"""Flattened tensors, one above the other in each replica's run of a bucket's rows.

The few array ops that a TPU's buckets of them are made of. A bucket is [num_shards * height, 128]:
each run of `height` rows, one for each shard, holds that shard of every tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import axis_ops, columns
from tf_wu_shard.grounds.tpu.torus import Groups
from tf_wu_shard.layout import TILE, TileLayout


def reduce_scatter(
    at: Emitter,
    ordered: Sequence[Value],
    layouts: Sequence[TileLayout],
    axes: Sequence[Groups],
    fill: Value | None,
) -> Value:
    """Sums tensors over the replicas.

    Args:
        at: Where to emit.
        ordered: The tensors, their dimensions in the order of their layouts.
        layouts: How each is cut.
        axes: The groups of replicas along each axis of the torus.
        fill: A scalar that they are written over; zero if there is none.

    Returns:
        Each replica's run of the bucket's rows, for `runs_apart`.
    """
    matrices = [
        flattened(at, value, layout) for value, layout in zip(ordered, layouts, strict=True)
    ]
    runs = layouts[0].num_shards
    bucket = runs_together(at, matrices, layouts, runs, fill)
    return axis_ops.reduce_scatter(at, bucket, (runs * _height(layouts), TILE[1]), axes)


def all_gather(
    at: Emitter, own: Sequence[Value], layouts: Sequence[TileLayout], axes: Sequence[Groups]
) -> list[Value]:
    """Puts tensors together again out of each replica's shards.

    Returns:
        The tensors, their dimensions in the order of their layouts.
    """
    whole = runs_together(at, own, layouts, 1)
    rows = _height(layouts)
    for groups in reversed(axes):
        whole = axis_ops.all_gather(at, whole, (rows, TILE[1]), groups)
        rows *= len(groups[0])
    matrices = runs_apart(at, whole, layouts, layouts[0].num_shards)
    return [
        unflattened(at, matrix, layout) for matrix, layout in zip(matrices, layouts, strict=True)
    ]


def flattened(at: Emitter, ordered: Value, layout: TileLayout) -> Value:
    """A tensor, its dimensions in its layout's order, as a matrix of padded rows."""
    vector = at.flat(ordered, "elements")
    if layout.padding:
        vector = at.op("Pad", [vector, at.constant([[0, layout.padding]])], "pad")
    return at.reshape(vector, (layout.padded_rows, TILE[1]), "tiles")


def unflattened(at: Emitter, matrix: Value, layout: TileLayout) -> Value:
    """What `flattened` made a matrix of."""
    vector = at.flat(matrix, "elements")
    if layout.padding:
        vector = at.run(vector, 0, layout.size, "held")
    return at.reshape(vector, layout.ordered_shape, "ordered")


def runs_together(
    at: Emitter,
    matrices: Sequence[Value],
    layouts: Sequence[TileLayout],
    num_runs: int,
    fill: Value | None = None,
) -> Value:
    """Tensors, or one run of each, one above the other in every run.

    Args:
        at: Where to emit.
        matrices: For each tensor `num_runs` runs of its rows.
        layouts: How each is cut.
        num_runs: How many runs there are of each.
        fill: A scalar that they are written over; zero if there is none.
    """
    if len(matrices) == 1:
        return matrices[0]
    high, start = _height(layouts), 0
    number = fill or columns.zero_like(at, matrices[0])
    bucket = columns.held_apart(at, columns.filled(at, (num_runs, high, TILE[1]), number))
    for matrix, layout in zip(matrices, layouts, strict=True):
        runs = at.reshape(matrix, (num_runs, layout.run_rows, TILE[1]), "runs")
        bucket = columns.placed(at, bucket, runs, (0, start, 0))
        start += layout.run_rows
    return at.reshape(bucket, (num_runs * high, TILE[1]), "rows")


def runs_apart(
    at: Emitter, bucket: Value, layouts: Sequence[TileLayout], num_runs: int
) -> list[Value]:
    """Each tensor's runs of rows, out of what `runs_together` made of them."""
    if len(layouts) == 1:
        return [bucket]
    runs = at.reshape(bucket, (num_runs, _height(layouts), TILE[1]), "runs")
    found, start = [], 0
    for layout in layouts:
        own = at.block(runs, (0, start, 0), (num_runs, layout.run_rows, TILE[1]), "run")
        found.append(at.reshape(own, (num_runs * layout.run_rows, TILE[1]), "rows"))
        start += layout.run_rows
    return found


def _height(layouts: Sequence[TileLayout]) -> int:
    """The rows of a run."""
    return sum(layout.run_rows for layout in layouts)

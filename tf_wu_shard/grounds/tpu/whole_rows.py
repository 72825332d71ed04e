"""Tensors cut into rows and put together again outside of a TPU program, by plain ops of the host.

The same as `storage.parts` does with values, as ops of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import columns
from tf_wu_shard.layout import TileLayout


def cut(at: Emitter, value: Value, layout: TileLayout) -> list[Value]:
    """For each replica the shard of a whole value.

    Args:
        at: Where to emit.
        value: The value. If it is not of the layout's shape when the graph runs, that is an error.
        layout: How it is cut.
    """
    checked = at.op("EnsureShape", [value], "value", shape=layout.shape)
    elements = at.flat(at.transpose(checked, layout.order, "order"), "elements")
    if layout.padding:
        # Padding may hold anything; with zeros two cuts are alike. Padded rows follow all others,
        # so that the padding is at the end of the elements too.
        elements = at.op("Pad", [elements, at.constant([[0, layout.padding]])], "padded")
    matrix = at.reshape(elements, (layout.padded_rows, layout.columns), "rows")
    if layout.tile_shards > 1:
        matrix = columns.tiles_of_rows(at, matrix, layout.columns, 1)
    sizes = [layout.shard_shape(shard)[0] for shard in range(layout.num_shards)]
    runs = at.split(matrix, sizes, "runs")
    return [runs[number] for number in layout.held]


def joined(at: Emitter, shards: Sequence[Value], layout: TileLayout) -> Value:
    """A whole value out of its shards.

    Args:
        at: Where to emit.
        shards: For each replica its shard.
        layout: How the value is cut.
    """
    runs = [shards[layout.held.index(run)] for run in range(layout.num_shards)]
    return columns.whole_of_rows(at, at.concat(runs, "all_gather"), layout)

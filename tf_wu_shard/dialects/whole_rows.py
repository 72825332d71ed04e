"""Tensors cut into rows and put together again outside of a TPU program, by plain ops of the host.

The same as `storage.parts` does with values, as ops of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.dialects import columns, plain_ops
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import RowLayout

_INT32 = 3


def cut(
    builder: GraphBuilder, value: Value, layout: RowLayout, dtype: int, scope: str
) -> list[Value]:
    """For each replica the shard of a whole value.

    Args:
        builder: Where to emit.
        value: The value. If it is not of the layout's shape when the graph runs, that is an error.
        layout: How it is cut.
        dtype: Its element type.
        scope: Name scope of the emitted ops.
    """
    checked = builder.op(
        "EnsureShape", [value], name=f"{scope}/value", device="", types={"T": dtype}
    )
    described = builder.nodes[-1].attr["shape"].shape
    for size in layout.shape:
        described.dim.add().size = size
    ordered = columns.transposed(builder, checked, layout.order, dtype, f"{scope}/order")
    elements = plain_ops.flat(builder, ordered, dtype, "", f"{scope}/elements")
    if layout.padding:
        # Padding may hold anything; with zeros two cuts are alike. Padded rows follow all others,
        # so that the padding is at the end of the elements too.
        paddings = builder.constant([[0, layout.padding]], device="")
        types = {"T": dtype, "Tpaddings": _INT32}
        name = f"{scope}/padded"
        elements = builder.op("Pad", [elements, paddings], name=name, device="", types=types)
    rows = (layout.padded_rows, layout.columns)
    matrix = plain_ops.reshape(builder, elements, rows, dtype, "", f"{scope}/rows")
    if layout.tile_shards > 1:
        matrix = columns.tiles_of_rows(builder, matrix, layout.columns, 1, dtype, scope)
    sizes = [layout.shard_shape(shard)[0] for shard in range(layout.num_shards)]
    runs = plain_ops.parted(builder, matrix, sizes, dtype, "", f"{scope}/runs")
    return [runs[number] for number in layout.held]


def joined(
    builder: GraphBuilder, shards: Sequence[Value], layout: RowLayout, dtype: int, scope: str
) -> Value:
    """A whole value out of its shards.

    Args:
        builder: Where to emit.
        shards: For each replica its shard.
        layout: How the value is cut.
        dtype: Its element type.
        scope: Name scope of the emitted ops.
    """
    runs = [shards[layout.held.index(run)] for run in range(layout.num_shards)]
    matrix = plain_ops.joined(builder, runs, dtype, "", f"{scope}/all_gather")
    return columns.whole_of_rows(builder, matrix, layout, dtype, scope)

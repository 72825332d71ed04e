"""Replicas of a TPU cluster: one program for all, XLA's collectives, one torus axis at a time.

Tensors of a bucket lie side by side, each in columns of its own, their dimensions in the order in
which a TPU stores them. Each is written into its columns by a dynamic-update-slice while it still
has all its dimensions: then what computes a gradient writes it straight into the bucket. Seen as a
matrix before that, concatenated, or one above the other, they would be copied. A reduce-scatter
along one axis of the torus after the other gives each replica a run of the bucket's rows. Flattened
tensors have buckets of their own, of any sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.dialects import axis_ops, columns, plain_ops, stacked
from tf_wu_shard.dialects.base import CarriedReduction
from tf_wu_shard.dialects.columns import block
from tf_wu_shard.dialects.stack_exchange import StackExchange
from tf_wu_shard.dialects.torus import Groups, Torus
from tf_wu_shard.dtypes import dtype_name
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.layout import TILE, RowLayout, row_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.refusals import Refusal

_INT32 = 3
_RESOURCE = 20
_SUM = "CrossReplicaSum"

# How many reduce-scatters, and how many all-gathers, a step may have; none is combined with others.
MOST_COLLECTIVES = 24

# Brings what lies outside of a cluster into it.
REPLICATED_INPUT = "TPUReplicatedInput"


class TpuCluster:
    """The dialect of TPUStrategy: the graph holds one program, which all replicas run.

    Attributes:
        name: "tpu".
        min_elements: Below N * 1,024 elements a shard does not fill a tile; such tensors stay
            replicated, and the compiler combines their all-reduces.
        place: Where its replicas sit; see `Torus.place`.
        stacks: How its replicas take turns with whole tensors.
        bucket_bytes: Several buckets of 20 MiB find room in a core's vector memory.
        most_buckets: Each costs a collective of each kind along every axis of the torus.
    """

    name = "tpu"
    weights_in_shards = True
    owners = None
    bucket_bytes = 20 * 1024 * 1024

    def __init__(self, cluster: str, torus: Torus) -> None:
        """Makes the dialect of one cluster.

        Args:
            cluster: Its name, as its ops carry it; "" for a function inside of it, a branch or a
                loop's body, whose ops carry none.
            torus: Its replicas and their groups.
        """
        self._cluster = cluster
        self._torus = torus
        self.place = torus.place
        self.stacks = StackExchange(torus)
        self._last: tuple[GraphBuilder, Value, int] | None = None
        self.most_buckets: int | None = MOST_COLLECTIVES // len(torus.axes)
        self.min_elements = torus.num_replicas * TILE[0] * TILE[1]

    def copies(self, view: GraphView) -> tuple[str, ...]:
        """See `Dialect.copies`: one, on no device of its own."""
        return ("",)

    def num_replicas(self, copies: Sequence[str]) -> int:
        """See `Dialect.num_replicas`."""
        return self._torus.num_replicas

    def layout(self, shape: tuple[int, ...], item_bytes: int) -> RowLayout:
        """See `Dialect.layout`."""
        sizes = [len(groups[0]) for groups in self._torus.axes]
        return row_layout(shape, sizes, self._torus.held)

    def recognise(
        self, view: GraphView, devices: Sequence[str]
    ) -> tuple[list[CarriedReduction], list[Refusal]]:
        """See `Dialect.recognise`. A sum over all replicas of one tensor is one CrossReplicaSum."""
        found: list[CarriedReduction] = []
        refused: list[Refusal] = []
        for op in view:
            if op.type != _SUM or op.name not in view.live:
                continue
            tensor = view.constant(op.inputs[1])
            dims = [d.size for d in tensor.tensor_shape.dim] if tensor is not None else []
            if dims != [1, self._torus.num_replicas]:
                refused.append(refusals.Topology.SUM_OF_SOME.at(op.name))
            elif unscattered := not_scattered(view, Value(op.name)):
                refused.append(unscattered)
            else:
                found.append(CarriedReduction((op.inputs[0],), (Value(op.name),), 1, (op.name,)))
        return found, refused

    def adopt(self, nodes: Iterable[Any]) -> None:
        """See `Dialect.adopt`: everything but the handles' way in belongs to the cluster."""
        for node in nodes if self._cluster else ():
            if node.op not in ("Placeholder", REPLICATED_INPUT):
                node.attr["_tpu_replicate"].s = self._cluster.encode()

    def shard_handle(self, builder: GraphBuilder, name: str) -> tuple[Value, Value]:
        """See `Dialect.shard_handle`: a packed handle, of which each replica sees its own."""
        if not self._cluster:
            handle = plain_ops.handle_input(builder, name)
            return handle, handle
        packed = plain_ops.handle_input(builder, f"{name}/packed")
        types, ints = {"T": _RESOURCE}, {"N": 1, "index": -1}
        handle = builder.op(
            REPLICATED_INPUT, [packed], name=name, device="", types=types, ints=ints
        )
        attr: Any = builder.nodes[-1].attr
        attr["is_packed"].b = True
        # Each replica has a value of its own behind it.
        attr["is_mirrored_variable"].b = False
        return packed, handle

    def all_reduce(
        self,
        builder: GraphBuilder,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        dtype: int,
        scope: str,
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """See `Dialect.all_reduce`. The compiler combines what is emitted one by one."""
        everyone = builder.constant([list(range(self._torus.num_replicas))], device="")
        sums = []
        for own, shape in zip(operands, shapes, strict=True):
            emit: dict[str, Any] = {"name": f"{scope}/sum", "device": "", "types": {"T": dtype}}
            if combine is not Combine.SUM:
                strings = {"reduce_op": plain_ops.EXTREMA[combine], "mode": "CrossReplica"}
                emit["strings"] = strings
            op_type = _SUM if combine is Combine.SUM else "XlaAllReduce"
            total = builder.op(op_type, [own[0], everyone], **emit)
            sums.append([plain_ops.reshape(builder, total, shape, dtype, "", f"{scope}/whole")])
        return sums

    def reduce_scatter(
        self,
        builder: GraphBuilder,
        operands: Sequence[Sequence[Value]],
        layouts: Sequence[RowLayout],
        dtype: int,
        scope: str,
    ) -> list[list[Value]]:
        """See `Dialect.reduce_scatter`."""
        ordered = [
            self._ordered(builder, own[0], layout, dtype, scope)
            for own, layout in zip(operands, layouts, strict=True)
        ]
        fill = self._after_the_last(builder, dtype, scope)
        if layouts[0].flattened:
            axes = self._torus.axes
            total = stacked.reduce_scatter(builder, ordered, layouts, axes, dtype, scope, fill)
            self._note(builder, total, dtype, scope)
            return [[own] for own in stacked.runs_apart(builder, total, layouts, 1, dtype, scope)]
        starts, width = columns.beginnings(layouts)
        total = self._bucket(builder, ordered, layouts[0], starts, width, dtype, scope, fill)
        by_row, by_tile = self._axes(layouts[0])
        shape = (layouts[0].padded_rows, width)
        total = axis_ops.reduce_scatter(builder, total, shape, by_row, dtype, scope)
        self._note(builder, total, dtype, scope)
        rows = layouts[0].run_rows
        if not by_tile:
            return [
                [block(builder, total, (0, start), (rows, layout.columns), dtype, f"{scope}/shard")]
                for start, layout in zip(starts, layouts, strict=True)
            ]
        count, width = len(layouts), layouts[0].columns
        total = columns.tiles_of_rows(builder, total, width, count, dtype, scope)
        shape = (rows * width * count // TILE[1], TILE[1])
        total = axis_ops.reduce_scatter(builder, total, shape, by_tile, dtype, scope)
        return [[own] for own in columns.tiles_apart(builder, total, layouts, dtype, scope)]

    def _after_the_last(self, builder: GraphBuilder, dtype: int, scope: str) -> Value | None:
        """A number that is there when the last bucket has been scattered, if there was one.

        What is written over it waits for that. So the compiler computes gradients when their turn
        comes, and keeps room for one bucket or two, instead of leaving all of them to the end.
        """
        if self._last is None or self._last[0] is not builder:
            return None
        _, number, its_dtype = self._last
        return plain_ops.cast(builder, number, its_dtype, dtype, scope)

    def _note(self, builder: GraphBuilder, scattered: Value, dtype: int, scope: str) -> None:
        """Notes that a bucket has been scattered."""
        number = columns.first_element(builder, scattered, dtype, scope)
        self._last = builder, number, dtype

    def _axes(self, layout: RowLayout) -> tuple[tuple[Groups, ...], tuple[Groups, ...]]:
        """The axes along which a layout cuts rows, and those along which it cuts tiles."""
        parts, count = layout.tile_shards, len(self._torus.axes)
        while parts > 1:
            count -= 1
            parts //= len(self._torus.axes[count][0])
        return self._torus.axes[:count], self._torus.axes[count:]

    def all_gather(
        self,
        builder: GraphBuilder,
        shards: Sequence[Sequence[Value]],
        layouts: Sequence[RowLayout],
        dtype: int,
        scope: str,
    ) -> list[list[Value]]:
        """See `Dialect.all_gather`."""
        own = [shard[0] for shard in shards]
        if layouts[0].flattened:
            tensors = stacked.all_gather(builder, own, layouts, self._torus.axes, dtype, scope)
            return [
                [self._shaped(builder, ordered, layout, dtype, scope)]
                for ordered, layout in zip(tensors, layouts, strict=True)
            ]
        starts, width = columns.beginnings(layouts)
        first = layouts[0]
        by_row, by_tile = self._axes(first)
        rows = first.run_rows
        if by_tile:
            count = len(layouts)
            whole = columns.tiles_together(builder, own, layouts, dtype, scope)
            high = first.shard_shape(0)[0] * count
            for groups in reversed(by_tile):
                whole = axis_ops.all_gather(builder, whole, (high, TILE[1]), groups, dtype, scope)
                high *= len(groups[0])
            whole = columns.rows_of_tiles(builder, whole, first.columns, count, dtype, scope)
        else:
            whole = columns.side_by_side(builder, own, starts, (rows, width), dtype, scope)
        for groups in reversed(by_row):
            whole = axis_ops.all_gather(builder, whole, (rows, width), groups, dtype, scope)
            rows *= len(groups[0])
        if first.padded_rows > first.rows:
            size = (first.rows, width)
            whole = block(builder, whole, (0, 0), size, dtype, f"{scope}/rows")
        leading = first.ordered_shape[:-1]
        whole = plain_ops.reshape(builder, whole, (*leading, width), dtype, "", f"{scope}/bucket")
        return [
            [self._tensor(builder, whole, start, layout, dtype, scope)]
            for start, layout in zip(starts, layouts, strict=True)
        ]

    def slice_own(
        self,
        builder: GraphBuilder,
        value: Value,
        layout: RowLayout,
        dtype: int,
        replica: int,
        name: str,
    ) -> Value:
        """See `Dialect.slice_own`; which run of rows is known when the program runs."""
        ordered = self._ordered(builder, value, layout, dtype, name)
        if layout.flattened:
            padded = stacked.flattened(builder, ordered, layout, dtype, name)
        else:
            padded = self._bucket(builder, [ordered], layout, [0], layout.columns, dtype, name)
        if layout.tile_shards > 1:
            padded = columns.tiles_of_rows(builder, padded, layout.columns, 1, dtype, name)
        shard = layout.shard_shape(replica)
        begin = columns.own_begin(builder, layout, name)
        size = builder.constant(list(shard), device="")
        types = {"T": dtype, "Index": _INT32}
        return builder.op("Slice", [padded, begin, size], name=name, device="", types=types)

    def _ordered(
        self, builder: GraphBuilder, value: Value, layout: RowLayout, dtype: int, scope: str
    ) -> Value:
        """A tensor with its dimensions in its layout's order."""
        shaped = plain_ops.reshape(builder, value, layout.shape, dtype, "", f"{scope}/shape")
        return columns.transposed(builder, shaped, layout.order, dtype, f"{scope}/order")

    def _bucket(
        self,
        builder: GraphBuilder,
        ordered: Sequence[Value],
        first: RowLayout,
        starts: Sequence[int],
        width: int,
        dtype: int,
        scope: str,
        fill: Value | None = None,
    ) -> Value:
        """Tensors of equal leading dimensions side by side, as a matrix of padded rows."""
        shape = (*first.ordered_shape[:-1], width)
        bucket = columns.side_by_side(builder, ordered, starts, shape, dtype, scope, fill)
        rows = (first.rows, width)
        matrix = plain_ops.reshape(builder, bucket, rows, dtype, "", f"{scope}/rows")
        if first.padded_rows == first.rows:
            return matrix
        padded = (first.padded_rows, width)
        return columns.placed(
            builder, columns.filled(builder, padded, dtype, scope), matrix, (0, 0), dtype, scope
        )

    def _tensor(
        self,
        builder: GraphBuilder,
        bucket: Value,
        start: int,
        layout: RowLayout,
        dtype: int,
        scope: str,
    ) -> Value:
        """A tensor out of a bucket's columns that begin at `start`."""
        begin = (*(0 for _ in layout.order[1:]), start)
        own = block(builder, bucket, begin, layout.ordered_shape, dtype, f"{scope}/columns")
        return self._shaped(builder, own, layout, dtype, scope)

    def _shaped(
        self, builder: GraphBuilder, ordered: Value, layout: RowLayout, dtype: int, scope: str
    ) -> Value:
        """A tensor out of what `_ordered` made of it."""
        back = tuple(layout.order.index(d) for d in range(len(layout.order)))
        return columns.transposed(builder, ordered, back, dtype, f"{scope}/whole")


def not_scattered(view: GraphView, gradient: Value) -> Refusal | None:
    """Why a gradient cannot be reduced to shards on TPUs; None where it can.

    Args:
        view: The graph.
        gradient: The gradient, whole.
    """
    dtype = view.dtype(gradient)
    if dtype in axis_ops.SCATTERED:
        return None
    return refusals.Topology.NOT_SCATTERED.at(gradient.op, dtype=dtype_name(dtype))

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
from tf_wu_shard.dtypes import dtype_name
from tf_wu_shard.graph.builder import Emitter, GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds import plain_ops
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.tpu import axis_ops, columns, stacked
from tf_wu_shard.grounds.tpu.ops import PROGRAM, REPLICATED_INPUT, SUM
from tf_wu_shard.grounds.tpu.stack_exchange import StackExchange
from tf_wu_shard.grounds.tpu.torus import Groups, Torus
from tf_wu_shard.layout import TILE, TileLayout, tile_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import of_one_program

# How many reduce-scatters, and how many all-gathers, a step may have; none is combined with others.
MOST_COLLECTIVES = 24


class TpuCluster:
    """The dialect of TPUStrategy: the graph holds one program, which all replicas run.

    Attributes:
        preferences: Below N * 1,024 elements a shard does not fill a tile; such tensors stay
            replicated, and the compiler combines their all-reduces. Several buckets of 20 MiB find
            room in a core's vector memory; each costs a collective of each kind along every axis
            of the torus.
        replicas: All run one program; where they sit, see `Torus.place`.
        stacks: How its replicas take turns with whole tensors.
    """

    uneven = None
    entries = None

    def __init__(self, cluster: str, torus: Torus) -> None:
        """Makes the dialect of one cluster.

        Args:
            cluster: Its name, as its ops carry it; "" for a function inside of it, a branch or a
                loop's body, whose ops carry none.
            torus: Its replicas and their groups.
        """
        self._cluster = cluster
        self._torus = torus
        self.replicas = of_one_program(torus.num_replicas, torus.place)
        self.stacks = StackExchange(torus)
        self._last: tuple[GraphBuilder, Value] | None = None
        self.preferences = Preferences(
            min_elements=torus.num_replicas * TILE[0] * TILE[1],
            smallest_shard=TILE[0] * TILE[1],
            bucket_bytes=20 * 1024 * 1024,
            most_buckets=MOST_COLLECTIVES // len(torus.axes),
            weights_in_shards=True,
            layout=self._layout,
        )

    def _layout(self, shape: tuple[int, ...], item_bytes: int) -> TileLayout:
        """How a variable is cut: into runs of rows along each axis of the torus."""
        sizes = [len(groups[0]) for groups in self._torus.axes]
        return tile_layout(shape, sizes, self._torus.held)

    def recognise(self, view: GraphView) -> tuple[list[CarriedReduction], list[Refusal]]:
        """See `Dialect.recognise`. A sum over all replicas of one tensor is one CrossReplicaSum."""
        found: list[CarriedReduction] = []
        refused: list[Refusal] = []
        for op in view.of_types(SUM):
            if op.name not in view.live:
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
                node.attr[PROGRAM].s = self._cluster.encode()

    def shard_handle(self, at: Emitter) -> tuple[Value, Value]:
        """See `Dialect.shard_handle`: a packed handle, of which each replica sees its own."""
        if not self._cluster:
            handle = at.handle_input("")
            return handle, handle
        packed = at.handle_input("packed")
        # Not mirrored: each replica has a value of its own behind it.
        handle = at.op(
            REPLICATED_INPUT, [packed], "", index=-1, is_packed=True, is_mirrored_variable=False
        )
        return packed, handle

    def all_reduce(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """See `Dialect.all_reduce`. The compiler combines what is emitted one by one."""
        everyone = at.constant([list(range(self._torus.num_replicas))])
        sums = []
        for own, shape in zip(operands, shapes, strict=True):
            if combine is Combine.SUM:
                total = at.op(SUM, [own[0], everyone], "sum")
            else:
                how = {"reduce_op": plain_ops.EXTREMA[combine], "mode": "CrossReplica"}
                total = at.op("XlaAllReduce", [own[0], everyone], "sum", **how)
            sums.append([at.reshape(total, shape, "whole")])
        return sums

    def reduce_scatter(
        self, at: Emitter, operands: Sequence[Sequence[Value]], layouts: Sequence[TileLayout]
    ) -> list[list[Value]]:
        """See `Dialect.reduce_scatter`."""
        ordered = [
            columns.ordered(at, own[0], layout)
            for own, layout in zip(operands, layouts, strict=True)
        ]
        fill = self._after_the_last(at, at.dtype(ordered[0]))
        if layouts[0].flattened:
            total = stacked.reduce_scatter(at, ordered, layouts, self._torus.axes, fill)
            self._note(at, total)
            return [[own] for own in stacked.runs_apart(at, total, layouts, 1)]
        starts, width = columns.beginnings(layouts)
        total = _bucket(at, ordered, layouts[0], starts, width, fill)
        by_row, by_tile = self._axes(layouts[0])
        total = axis_ops.reduce_scatter(at, total, (layouts[0].padded_rows, width), by_row)
        self._note(at, total)
        rows = layouts[0].run_rows
        if not by_tile:
            return [
                [at.block(total, (0, start), (rows, layout.columns), "shard")]
                for start, layout in zip(starts, layouts, strict=True)
            ]
        count, width = len(layouts), layouts[0].columns
        total = columns.tiles_of_rows(at, total, width, count)
        shape = (rows * width * count // TILE[1], TILE[1])
        total = axis_ops.reduce_scatter(at, total, shape, by_tile)
        return [[own] for own in columns.tiles_apart(at, total, layouts)]

    def _after_the_last(self, at: Emitter, dtype: int) -> Value | None:
        """A number that is there when the last bucket has been scattered, if there was one.

        What is written over it waits for that. So the compiler computes gradients when their turn
        comes, and keeps room for one bucket or two, instead of leaving all of them to the end.
        """
        if self._last is None or self._last[0] is not at.builder:
            return None
        return at.cast(self._last[1], dtype, "cast")

    def _note(self, at: Emitter, scattered: Value) -> None:
        """Notes that a bucket has been scattered."""
        self._last = at.builder, columns.first_element(at, scattered)

    def _axes(self, layout: TileLayout) -> tuple[tuple[Groups, ...], tuple[Groups, ...]]:
        """The axes along which a layout cuts rows, and those along which it cuts tiles."""
        parts, count = layout.tile_shards, len(self._torus.axes)
        while parts > 1:
            count -= 1
            parts //= len(self._torus.axes[count][0])
        return self._torus.axes[:count], self._torus.axes[count:]

    def all_gather(
        self, at: Emitter, shards: Sequence[Sequence[Value]], layouts: Sequence[TileLayout]
    ) -> list[list[Value]]:
        """See `Dialect.all_gather`."""
        own = [shard[0] for shard in shards]
        if layouts[0].flattened:
            tensors = stacked.all_gather(at, own, layouts, self._torus.axes)
            return [
                [columns.unordered(at, tensor, layout)]
                for tensor, layout in zip(tensors, layouts, strict=True)
            ]
        starts, width = columns.beginnings(layouts)
        first = layouts[0]
        by_row, by_tile = self._axes(first)
        rows = first.run_rows
        if by_tile:
            count = len(layouts)
            whole = columns.tiles_together(at, own, layouts)
            high = first.shard_shape(0)[0] * count
            for groups in reversed(by_tile):
                whole = axis_ops.all_gather(at, whole, (high, TILE[1]), groups)
                high *= len(groups[0])
            whole = columns.rows_of_tiles(at, whole, first.columns, count)
        else:
            whole = columns.side_by_side(at, own, starts, (rows, width))
        for groups in reversed(by_row):
            whole = axis_ops.all_gather(at, whole, (rows, width), groups)
            rows *= len(groups[0])
        if first.padded_rows > first.rows:
            whole = at.block(whole, (0, 0), (first.rows, width), "rows")
        whole = at.reshape(whole, (*first.ordered_shape[:-1], width), "bucket")
        gathered = []
        for start, layout in zip(starts, layouts, strict=True):
            begin = (*(0 for _ in layout.order[1:]), start)
            tensor = at.block(whole, begin, layout.ordered_shape, "columns")
            gathered.append([columns.unordered(at, tensor, layout)])
        return gathered

    def shard_of(self, copy: int) -> int:
        """See `Dialect.shard_of`. One program stands for all shards, which are of one shape."""
        return copy

    def slice_own(self, at: Emitter, value: Value, layout: TileLayout, shard: int) -> Value:
        """See `Dialect.slice_own`; which run of rows is known when the program runs."""
        ordered = columns.ordered(at, value, layout)
        if layout.flattened:
            padded = stacked.flattened(at, ordered, layout)
        else:
            padded = _bucket(at, [ordered], layout, [0], layout.columns)
        if layout.tile_shards > 1:
            padded = columns.tiles_of_rows(at, padded, layout.columns, 1)
        size = at.constant(list(layout.shard_shape(shard)))
        return at.op("Slice", [padded, columns.own_begin(at, layout), size], "")


def _bucket(
    at: Emitter,
    ordered: Sequence[Value],
    first: TileLayout,
    starts: Sequence[int],
    width: int,
    fill: Value | None = None,
) -> Value:
    """Tensors of equal leading dimensions side by side, as a matrix of padded rows."""
    shape = (*first.ordered_shape[:-1], width)
    bucket = columns.side_by_side(at, ordered, starts, shape, fill)
    matrix = at.reshape(bucket, (first.rows, width), "rows")
    if first.padded_rows == first.rows:
        return matrix
    zero = columns.zero_like(at, matrix)
    empty = columns.filled(at, (first.padded_rows, width), zero)
    return columns.placed(at, empty, matrix, (0, 0))


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

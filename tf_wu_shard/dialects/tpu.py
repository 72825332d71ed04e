"""Replicas of a TPU cluster: one program for all, XLA's collectives, one torus axis at a time.

Tensors of a bucket lie side by side in one matrix, each in its own columns, in the order in which a
TPU stores them. Each is written into the matrix by a dynamic-update-slice, which the compiler does
in place: what computes a gradient writes it straight into the bucket. A concatenation, or tensors
one above the other, would be copied. A reduce-scatter along one axis of the torus after the other
gives each replica a run of the matrix' rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.dialects.base import CarriedReduction
from tf_wu_shard.dialects.torus import Groups, Torus
from tf_wu_shard.graph import all_gather_module
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.view import GraphView, Value
from tf_wu_shard.layout import TILE, RowLayout, row_layout
from tf_wu_shard.placement import Refusal

_INT32 = 3
_RESOURCE = 20
_SUM = "CrossReplicaSum"

# Brings what lies outside of a cluster into it.
REPLICATED_INPUT = "TPUReplicatedInput"


class TpuCluster:
    """The dialect of TPUStrategy: the graph holds one program, which all replicas run.

    Attributes:
        name: "tpu".
        min_elements: Below N * 1,024 elements a shard does not fill a tile; such tensors stay
            replicated, and the compiler combines their all-reduces.
        bucket_bytes: Buckets of about 16 MB stay in a core's vector memory on their way.
    """

    name = "tpu"
    weights_in_shards = True
    bucket_bytes = 16 * 1024 * 1024

    def __init__(self, cluster: str, torus: Torus) -> None:
        """Makes the dialect of one cluster.

        Args:
            cluster: Its name, as its ops carry it.
            torus: Its replicas and their groups.
        """
        self._cluster = cluster
        self._torus = torus
        self.min_elements = torus.num_replicas * TILE[0] * TILE[1]

    def copies(self, view: GraphView) -> tuple[str, ...]:
        """See `Dialect.copies`: one, on no device of its own."""
        return ("",)

    def num_replicas(self, copies: Sequence[str]) -> int:
        """See `Dialect.num_replicas`."""
        return self._torus.num_replicas

    def layout(self, shape: tuple[int, ...], item_bytes: int) -> RowLayout:
        """See `Dialect.layout`."""
        return row_layout(shape, self._torus.num_replicas, self._torus.held)

    def recognise(
        self, view: GraphView, devices: Sequence[str]
    ) -> tuple[list[CarriedReduction], list[Refusal]]:
        """See `Dialect.recognise`. A sum over all replicas of one tensor is one CrossReplicaSum."""
        found: list[CarriedReduction] = []
        refusals: list[Refusal] = []
        for op in view:
            if op.type != _SUM or op.name not in view.live:
                continue
            tensor = view.constant(op.inputs[1])
            dims = [d.size for d in tensor.tensor_shape.dim] if tensor is not None else []
            if dims != [1, self._torus.num_replicas]:
                refusals.append(Refusal(op.name, "it sums over some of the replicas only"))
            elif all_gather_module.element_type(view.dtype(Value(op.name))) is None:
                refusals.append(Refusal(op.name, "no all-gather is known for its element type"))
            else:
                found.append(CarriedReduction((op.inputs[0],), (Value(op.name),), 1, (op.name,)))
        return found, refusals

    def adopt(self, nodes: Iterable[Any]) -> None:
        """See `Dialect.adopt`: everything but the handles' way in belongs to the cluster."""
        for node in nodes:
            if node.op not in ("Placeholder", REPLICATED_INPUT):
                node.attr["_tpu_replicate"].s = self._cluster.encode()

    def shard_handle(self, builder: GraphBuilder, name: str) -> tuple[Value, Value]:
        """See `Dialect.shard_handle`: a packed handle, of which each replica sees its own."""
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
    ) -> list[list[Value]]:
        """See `Dialect.all_reduce`. The compiler combines what is emitted one by one."""
        everyone = builder.constant([list(range(self._torus.num_replicas))], device="")
        sums = []
        for own, shape in zip(operands, shapes, strict=True):
            inputs, types = [own[0], everyone], {"T": dtype}
            total = builder.op(_SUM, inputs, name=f"{scope}/sum", device="", types=types)
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
        places, width = _columns(layouts)
        matrices = [
            self._matrix(builder, own[0], layout, dtype, scope)
            for own, layout in zip(operands, layouts, strict=True)
        ]
        shape = (layouts[0].padded_rows, width)
        heights = [layout.rows for layout in layouts]
        total = self._side_by_side(builder, matrices, heights, layouts, shape, dtype, scope)
        for groups in self._torus.axes:
            total = self._scatter(builder, total, groups, dtype, scope)
        rows = layouts[0].shard_rows
        return [
            [_block(builder, total, (0, start), (rows, layout.columns), dtype, f"{scope}/shard")]
            for start, layout in zip(places, layouts, strict=True)
        ]

    def all_gather(
        self,
        builder: GraphBuilder,
        shards: Sequence[Sequence[Value]],
        layouts: Sequence[RowLayout],
        dtype: int,
        scope: str,
    ) -> list[list[Value]]:
        """See `Dialect.all_gather`."""
        places, width = _columns(layouts)
        rows = layouts[0].shard_rows
        own = [shard[0] for shard in shards]
        heights = [rows] * len(layouts)
        whole = self._side_by_side(builder, own, heights, layouts, (rows, width), dtype, scope)
        for groups in reversed(self._torus.axes):
            whole = self._gather(builder, whole, (rows, width), groups, dtype, scope)
            rows *= len(groups[0])
        return [
            [self._tensor(builder, whole, start, layout, dtype, scope)]
            for start, layout in zip(places, layouts, strict=True)
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
        matrix = self._matrix(builder, value, layout, dtype, name)
        whole = (layout.padded_rows, layout.columns)
        height = [layout.rows]
        padded = self._side_by_side(builder, [matrix], height, [layout], whole, dtype, name)
        number = builder.op("XlaReplicaId", [], name=f"{name}/replica_id", device="")
        held = builder.constant([h * layout.shard_rows for h in layout.held], device="")
        axis = builder.constant(0, device="")
        first = builder.op(
            "GatherV2",
            [held, number, axis],
            name=f"{name}/first_row",
            device="",
            types={"Tparams": _INT32, "Tindices": _INT32, "Taxis": _INT32},
        )
        begin = builder.op(
            "Pack",
            [first, axis],
            name=f"{name}/begin",
            device="",
            types={"T": _INT32},
            ints={"N": 2, "axis": 0},
        )
        size = builder.constant([layout.shard_rows, layout.columns], device="")
        types = {"T": dtype, "Index": _INT32}
        return builder.op("Slice", [padded, begin, size], name=name, device="", types=types)

    def _matrix(
        self, builder: GraphBuilder, value: Value, layout: RowLayout, dtype: int, scope: str
    ) -> Value:
        """A tensor as the matrix that its layout cuts."""
        shaped = plain_ops.reshape(builder, value, layout.shape, dtype, "", f"{scope}/shape")
        ordered = _transposed(builder, shaped, layout.order, dtype, f"{scope}/order")
        rows = (layout.rows, layout.columns)
        return plain_ops.reshape(builder, ordered, rows, dtype, "", f"{scope}/rows")

    def _tensor(
        self,
        builder: GraphBuilder,
        matrix: Value,
        start: int,
        layout: RowLayout,
        dtype: int,
        scope: str,
    ) -> Value:
        """A tensor out of the columns of a matrix that begin at `start`."""
        size = (layout.rows, layout.columns)
        own = _block(builder, matrix, (0, start), size, dtype, f"{scope}/columns")
        ordered = plain_ops.reshape(
            builder, own, layout.ordered_shape, dtype, "", f"{scope}/ordered"
        )
        back = tuple(layout.order.index(d) for d in range(len(layout.order)))
        return _transposed(builder, ordered, back, dtype, f"{scope}/whole")

    def _side_by_side(
        self,
        builder: GraphBuilder,
        matrices: Sequence[Value],
        heights: Sequence[int],
        layouts: Sequence[RowLayout],
        shape: tuple[int, int],
        dtype: int,
        scope: str,
    ) -> Value:
        """Matrices of the layouts' columns in the columns of one, filled up with zeros."""
        if len(matrices) == 1 and shape == (heights[0], layouts[0].columns):
            return matrices[0]
        zero = builder.constant(0, device="", dtype=dtype)
        dims = builder.constant(list(shape), device="")
        types = {"T": dtype, "index_type": _INT32}
        bucket = builder.op("Fill", [dims, zero], name=f"{scope}/zeros", device="", types=types)
        for matrix, start in zip(matrices, _columns(layouts)[0], strict=True):
            place = builder.constant([0, start], device="")
            bucket = builder.op(
                "XlaDynamicUpdateSlice",
                [bucket, matrix, place],
                name=f"{scope}/place",
                device="",
                types={"T": dtype, "Tindices": _INT32},
            )
        return bucket

    def _scatter(
        self, builder: GraphBuilder, value: Value, groups: Groups, dtype: int, scope: str
    ) -> Value:
        assignment = builder.constant([list(group) for group in groups], device="")
        axis = builder.constant(0, device="")
        return builder.op(
            "XlaReduceScatter",
            [value, assignment, axis],
            name=f"{scope}/axis",
            device="",
            types={"T": dtype},
            strings={"reduce_op": "Add"},
        )

    def _gather(
        self,
        builder: GraphBuilder,
        value: Value,
        shape: tuple[int, int],
        groups: Groups,
        dtype: int,
        scope: str,
    ) -> Value:
        module = all_gather_module.write(shape, dtype, groups)
        gathered = builder.op(
            "XlaCallModule",
            [value],
            name=f"{scope}/axis",
            device="",
            ints={"version": all_gather_module.VERSION},
            strings={"module": module},
        )
        attr: Any = builder.nodes[-1].attr
        attr["Tin"].list.type.append(dtype)
        attr["Tout"].list.type.append(dtype)
        described = attr["Sout"].list.shape.add()
        for size in (shape[0] * len(groups[0]), shape[1]):
            described.dim.add().size = size
        attr["platforms"].list.s.append(b"TPU")
        attr["disabled_checks"].list.s.append(b"platform")
        return gathered


def _columns(layouts: Sequence[RowLayout]) -> tuple[list[int], int]:
    """Where each tensor's columns begin in a bucket, at tiles, and how wide the bucket is."""
    if len(layouts) == 1:
        return [0], layouts[0].columns
    starts, width = [], 0
    for layout in layouts:
        starts.append(width)
        width += math.ceil(layout.columns / TILE[1]) * TILE[1]
    return starts, width


def _block(
    builder: GraphBuilder,
    matrix: Value,
    begin: tuple[int, int],
    size: tuple[int, int],
    dtype: int,
    name: str,
) -> Value:
    start = builder.constant(list(begin), device="")
    shape = builder.constant(list(size), device="")
    types = {"T": dtype, "Index": _INT32}
    return builder.op("Slice", [matrix, start, shape], name=name, device="", types=types)


def _transposed(
    builder: GraphBuilder, value: Value, order: tuple[int, ...], dtype: int, name: str
) -> Value:
    if order == tuple(range(len(order))):
        return value
    permutation = builder.constant(list(order), device="")
    types = {"T": dtype, "Tperm": _INT32}
    return builder.op("Transpose", [value, permutation], name=name, device="", types=types)

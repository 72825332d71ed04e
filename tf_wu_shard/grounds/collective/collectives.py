"""Replicas that exchange data by the strategy's collectives: several GPUs, or other processes.

An edge between GPUs is a copy, so that one concatenation which all replicas read, as in-process
replicas share it, would be the wrong program there. Shards and gradients travel by collectives of
the group that the strategy itself sums gradients with.

Where TensorFlow's ring carries a collective out, sums are made of an all-to-all and additions in
the order of the replicas: it moves the bytes of a reduce-scatter, whose kernel only NCCL has, and
two runs agree bit for bit. NCCL sums in an order of its own, always the same one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import FLOAT16, FLOAT32, FLOAT64, INT32, INT64, item_bytes
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds import plain_ops
from tf_wu_shard.grounds.collective.group import Member, group_of
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.refusals import Refusal

# The types that CollectiveGatherV2 has a kernel for; the bits of others travel as one of them, two
# of them where an element has 16 bytes. What has one byte travels as a number.
_GATHERED = frozenset({FLOAT16, FLOAT32, FLOAT64, INT32, INT64})
_BITS = {2: FLOAT16, 4: INT32, 8: INT64, 16: INT64}

# An exchange of more elements than this goes in pieces, so that one is added up while the next
# travels. Four pieces of 16 Mi floats took 0.74 of the time of one, among 4 processes.
_PIECE = 4 * 1024 * 1024

# Below this, what all replicas have travels whole: one collective in place of two.
_GATHERED_BYTES = 64 * 1024

_MERGE = {Combine.SUM: b"Add", Combine.MAX: b"Max", Combine.MIN: b"Min"}


class Collectives(InProcess):
    """Replicas of one process that exchange data by collectives.

    A graph that sums nothing over replicas, such as an evaluation that reads a slot, has no group
    of theirs; there data goes over edges, as between in-process replicas.

    Attributes:
        preferences: As in-process, but for what travels.
        wire_dtype: The DataType number of what float32 gradients travel in, to be summed in
            float32; None for their own type.
    """

    preferences = dataclasses.replace(InProcess.preferences, narrow_sums=True)
    wire_dtype: int | None = None
    _group: tuple[Member, ...] = ()

    def recognise(self, view: GraphView) -> tuple[list[CarriedReduction], list[Refusal]]:
        """See `Dialect.recognise`. Sums that show no group are not taken."""
        found, refused = super().recognise(view)
        self._group = self._members(view, group_of(view, found))
        if found and not self._group:
            where = found[0].carriers[0]
            return [], [*refused, refusals.Topology.NO_GROUP.at(where)]
        return found, refused

    @property
    def _nodes(self) -> tuple[tuple[int, ...], ...]:
        """The copies that the graph holds, by node.

        Replicas of a node exchange over edges; and the i-th of each node, of all processes, by
        collectives of a group of their own. Here each is a node.
        """
        return tuple((copy,) for copy in range(len(self.devices)))

    @property
    def _num_nodes(self) -> int:
        """How many nodes all processes have."""
        return self.replicas.total // len(self._nodes[0])

    def _members(self, view: GraphView, group: tuple[Member, ...]) -> tuple[Member, ...]:
        """Per copy, its membership in the group of those of its place in each node.

        Args:
            view: The graph.
            group: Per copy, its membership in the group of all replicas; or none.
        """
        return group

    def _by_collectives(self) -> bool:
        """Whether data goes by collectives here, and not over edges."""
        return bool(self._group)

    def reduce_scatter(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        layouts: Sequence[Layout],
    ) -> list[list[Value]]:
        """See `Dialect.reduce_scatter`."""
        if not self._by_collectives():
            return super().reduce_scatter(at, operands, layouts)
        wire = self.wire_dtype if at.dtype(operands[0][0]) == FLOAT32 else None
        return self._scattered(at, operands, layouts, wire)

    def _scattered(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        layouts: Sequence[Layout],
        wire: int | None,
    ) -> list[list[Value]]:
        """Per tensor, per copy, its shard of the sum; `wire` is what travels if not their type."""
        sizes = [layout.shard_size for layout in layouts]
        shards: list[list[Value]] = [[] for _ in layouts]
        for node in self._nodes:
            # Per copy of the node, what it has for the first of each node, the second, ...
            by_place = [
                self._by_place(at.on(self.devices[copy]), [own[copy] for own in operands], layouts)
                for copy in node
            ]
            for place, copy in enumerate(node):
                own = at.on(self.devices[copy])
                rows = own.ordered_sum([parts[place] for parts in by_place], "node")
                total = _reduced(own, self._group[copy], rows, (self._num_nodes, sum(sizes)), wire)
                for tensor, layout, part in zip(
                    shards, layouts, own.split(total, sizes, "unpack"), strict=True
                ):
                    shape = layout.shard_shape(self.shard_of(copy))
                    held = math.prod(shape)
                    if held < layout.shard_size:
                        part = own.run(part, 0, held, "own")
                    tensor.append(part if len(shape) == 1 else own.reshape(part, shape, "own/rows"))
        return shards

    def _by_place(
        self, at: Emitter, tensors: Sequence[Value], layouts: Sequence[Layout]
    ) -> list[Value]:
        """What a copy contributes, for each place within a node, a row for each node."""
        parts = [in_rows(at, own, layout) for own, layout in zip(tensors, layouts, strict=True)]
        rows = side_by_side(at, parts)
        places, width = len(self._nodes[0]), sum(layout.shard_size for layout in layouts)
        if places > 1:
            rows = at.reshape(rows, (self._num_nodes, places * width), "by_node")
        return at.split(rows, [width] * places, "unpack", axis=1)

    def all_gather(
        self, at: Emitter, shards: Sequence[Sequence[Value]], layouts: Sequence[Layout]
    ) -> list[list[Value]]:
        """See `Dialect.all_gather`. What shares no memory has a tensor of its own."""
        if not self._by_collectives():
            return super().all_gather(at, shards, layouts)
        sizes = [layout.shard_size for layout in layouts]
        whole: list[list[Value]] = [[] for _ in layouts]
        for node in self._nodes:
            columns = []
            for copy in node:
                own = at.on(self.devices[copy])
                parts = [
                    padded(own, own.flat(tensor[copy], "own"), layout, self.shard_of(copy))
                    for tensor, layout in zip(shards, layouts, strict=True)
                ]
                vectors = gathered(own, self._group[copy], own.concat(parts, "pack"))
                columns.append(own.reshape(vectors, (self._num_nodes, sum(sizes)), "rows"))
            tensors: list[Value] = []
            for copy in node:
                if not tensors or "GPU" in self.devices[copy]:
                    tensors = self._out_of_nodes(at.on(self.devices[copy]), columns, layouts)
                for tensor, value in zip(whole, tensors, strict=True):
                    tensor.append(value)
        return whole

    def _out_of_nodes(
        self, at: Emitter, columns: Sequence[Value], layouts: Sequence[Layout]
    ) -> list[Value]:
        """The tensors, out of the shards of the first of each node, of the second, ..."""
        sizes = [layout.shard_size for layout in layouts]
        rows = side_by_side(at, columns)
        if len(columns) > 1:
            rows = at.reshape(rows, (self.replicas.total, sum(sizes)), "by_replica")
        cut = at.split(rows, sizes, "unpack", axis=1)
        return [out_of_rows(at, part, layout) for part, layout in zip(cut, layouts, strict=True)]

    def all_reduce(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """See `Dialect.all_reduce`."""
        if not self._by_collectives():
            return super().all_reduce(at, operands, shapes, combine)
        sizes = [math.prod(shape) for shape in shapes]
        if not any(sizes):
            # TensorFlow's process crashes where workers gather nothing.
            return [[*own] for own in operands]
        packs = [
            at.on(m.device).concat([at.on(m.device).flat(o[r], "flat") for o in operands], "pack")
            for r, m in enumerate(self._group)
        ]
        found: list[list[Value]] = [[] for _ in shapes]
        totals = self._totals(at, packs, sum(sizes), combine)
        for member, total in zip(self._group, totals, strict=True):
            own = at.on(member.device)
            parts = own.split(total, sizes, "unpack")
            for tensor, part, shape in zip(found, parts, shapes, strict=True):
                tensor.append(own.reshape(part, shape, "whole"))
        return found

    def _totals(
        self, at: Emitter, packs: Sequence[Value], size: int, combine: Combine
    ) -> list[Value]:
        """Per copy, vectors of all replicas combined; a `size` of -1 is not known."""
        dtype = at.dtype(packs[0])
        # What has no known size cannot be cut; NCCL, or TensorFlow's ring, sums it whole.
        cannot_be_cut = self._group[0].by_nccl or size < 0
        large = size * item_bytes(dtype) > _GATHERED_BYTES
        if large and combine is Combine.SUM and not cannot_be_cut:
            layout = flat_layout((size,), self.replicas.total, item_bytes(dtype))
            (shards,) = self._scattered(at, [packs], [layout], None)
            (whole,) = self.all_gather(at, [shards], [layout])
            return whole
        totals: list[Value] = []
        for node in self._nodes:
            # The first one of a node speaks for all of them.
            member, own = self._group[node[0]], at.on(self.devices[node[0]])
            of_node = plain_ops.combined(own, [packs[copy] for copy in node], combine, "node")
            if cannot_be_cut:
                attributes = {"merge_op": _MERGE[combine], "final_op": b"Id"}
                total = member.collective(
                    own, "CollectiveReduceV2", of_node, "all_reduce", **attributes
                )
            else:
                vectors = gathered(own, member, of_node)
                terms = own.split(vectors, [size] * self._num_nodes, "terms")
                total = plain_ops.combined(own, terms, combine, "sum")
            for copy in node[1:]:
                self._group[copy].stand_aside(at, "all_reduce")
            totals += [total] * len(node)
        return totals

    def gather_entries(
        self, at: Emitter, parts: Mapping[str, Sequence[Value]]
    ) -> dict[str, list[Value]]:
        """See `Entries.gather_entries`. Each replica makes a list of its own."""
        return plain_ops.lists_of_each(at, self.devices, parts)


def _reduced(
    at: Emitter, member: Member, rows: Value, shape: tuple[int, int], wire: int | None
) -> Value:
    """The member's row of the sum over all members.

    Args:
        at: Where to emit.
        member: The member.
        rows: Its contribution to each member's row.
        shape: The number of members, and the elements of a row.
        wire: What the rows travel in; NCCL would add up in it, so it takes no part then.

    Returns:
        A vector.
    """
    count, width = shape
    if member.by_nccl and wire is None:
        flat = at.flat(rows, "rows")
        attributes = {"merge_op": b"Add", "final_op": b"Id"}
        own = member.collective(at, "CollectiveReduceScatterV2", flat, "sum", **attributes)
        # TensorFlow infers no shape of it.
        return at.reshape(own, (width,), "shaped")
    pieces = -(-count * width // _PIECE)
    sizes = [width * (i + 1) // pieces - width * i // pieces for i in range(pieces)]
    dtype, totals = at.dtype(rows), []
    if wire is not None:
        rows = at.cast(rows, wire, "narrow")
    for piece in at.split(rows, sizes, "unpack", axis=1):
        exchanged = member.collective(at, "CollectiveAllToAllV2", piece, "exchange")
        terms = at.split(at.cast(exchanged, dtype, "wide"), [1] * count, "terms")
        totals.append(at.flat(at.ordered_sum(terms, "sum"), "flat"))
    return totals[0] if len(totals) == 1 else at.concat(totals, "pieces")


def gathered(at: Emitter, member: Member, vector: Value) -> Value:
    """The vectors of all members, one after the other, in the order of their group."""
    dtype = at.dtype(vector)
    if dtype in _GATHERED:
        return member.collective(at, "CollectiveGatherV2", vector, "gather")
    width = item_bytes(dtype)
    if width == 1:
        numbers = at.cast(vector, INT32, "numbers")
        found = member.collective(at, "CollectiveGatherV2", numbers, "gather")
        return at.cast(found, dtype, "values")
    bits = at.op("Bitcast", [vector], "bits", type=_BITS[width])
    # An element of 16 bytes is a row of two numbers.
    pair = width // item_bytes(_BITS[width])
    found = member.collective(
        at, "CollectiveGatherV2", bits if pair == 1 else at.flat(bits, "flat"), "gather"
    )
    if pair > 1:
        found = at.reshape(found, (-1, pair), "pairs")
    return at.op("Bitcast", [found], "values", type=dtype)


def in_rows(at: Emitter, tensor: Value, layout: Layout) -> Value:
    """A tensor as [num_shards, shard_size], zeros behind its last element."""
    vector = at.flat(tensor, "flat")
    if layout.padding:
        vector = at.concat([vector, _zeros(at, layout.padding, at.dtype(tensor))], "padded")
    return at.reshape(vector, (layout.num_shards, layout.shard_size), "rows")


def out_of_rows(at: Emitter, rows: Value, layout: Layout) -> Value:
    """The tensor, in `layout.shape`, that `in_rows` made rows of."""
    vector = at.flat(rows, "flat")
    if layout.padding:
        vector = at.run(vector, 0, layout.size, "unpadded")
    return at.reshape(vector, layout.shape, "whole")


def padded(at: Emitter, shard: Value, layout: Layout, replica: int) -> Value:
    """A shard, a vector, with zeros behind it if it is none of the longest."""
    missing = layout.shard_size - math.prod(layout.shard_shape(replica))
    if not missing:
        return shard
    return at.concat([shard, _zeros(at, missing, at.dtype(shard))], "padded")


def _zeros(at: Emitter, count: int, dtype: int) -> Value:
    return at.op("Fill", [at.constant([count]), at.constant(0, dtype)], "zeros")


def side_by_side(at: Emitter, parts: Sequence[Value]) -> Value:
    """Matrices of as many rows each, one beside the other."""
    return parts[0] if len(parts) == 1 else at.op("ConcatV2", [*parts, at.constant(1)], "pack")

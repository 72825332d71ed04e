"""Replicas that share one process: plain cross-device edges, no collective op.

Between CPU devices of a process an edge passes a reference, not a copy. So the owner of a shard
reads its slice of every replica's gradient where it lies and sums them, replica 0, 1, 2 ... in this
order, and one concatenation of the updated shards serves as every replica's weight. Measured with
8 replicas of 16M floats, that takes 0.36 of the time of CollectiveReduceV2's ring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.dialects.replica_copies import CopyOfEachReplica
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import Layout
from tf_wu_shard.placement import Combine


class InProcess(CopyOfEachReplica):
    """The dialect of MirroredStrategy whose replicas all live in this process.

    Every verb is composed of plain ops; none is a collective. Sums are always taken in the order
    of the replicas, so two runs agree bit for bit.

    Attributes:
        name: "in-process".
        min_elements: Below this a variable's update costs less than the edges that would share it.
        bucket_bytes: Tensors below this are packed: the copy costs less than their edges.
    """

    name = "in-process"
    min_elements = 1024
    bucket_bytes = 256 * 1024

    def reduce_scatter(
        self,
        builder: GraphBuilder,
        operands: Sequence[Sequence[Value]],
        layouts: Sequence[Layout],
        dtype: int,
        scope: str,
    ) -> list[list[Value]]:
        """See `Dialect.reduce_scatter`."""
        if len(operands) == 1:
            return [self._reduce_scatter_one(builder, operands[0], layouts[0], dtype, scope)]
        # Packed owner by owner, so that each owner's part of a pack is one run.
        owners = range(len(self._devices))
        sizes = [[layout.shard_shape(r)[0] for layout in layouts] for r in owners]
        packs = [
            self._pack(builder, [own[i] for own in operands], layouts, dtype, i, scope)
            for i in owners
        ]
        shards: list[list[Value]] = [[] for _ in layouts]
        start = 0
        for r, device in enumerate(self._devices):
            stop = start + sum(sizes[r])
            total = self._sum_of_runs(builder, packs, start, stop, dtype, device, scope)
            parts = plain_ops.parted(builder, total, sizes[r], dtype, device, f"{scope}/unpack")
            for tensor, part in zip(shards, parts, strict=True):
                tensor.append(part)
            start = stop
        return shards

    def all_gather(
        self,
        builder: GraphBuilder,
        shards: Sequence[Sequence[Value]],
        layouts: Sequence[Layout],
        dtype: int,
        scope: str,
    ) -> list[list[Value]]:
        """See `Dialect.all_gather`. All replicas get the same tensor, on one of the devices.

        The devices of a graph take turns.
        """
        whole: list[list[Value]] = []
        device = self._devices[builder.ordinal("all_gather") % len(self._devices)]
        for own, layout in zip(shards, layouts, strict=True):
            held = [s for r, s in enumerate(own) if layout.shard_shape(r)[0]]
            vector = plain_ops.joined(builder, held, dtype, device, f"{scope}/concat")
            shaped = plain_ops.reshape(
                builder, vector, layout.shape, dtype, device, f"{scope}/whole"
            )
            whole.append([shaped] * len(self._devices))
        return whole

    def all_reduce(
        self,
        builder: GraphBuilder,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        dtype: int,
        scope: str,
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """See `Dialect.all_reduce`. All replicas get the same tensors, on the first device."""
        packs = [
            plain_ops.joined(
                builder,
                [plain_ops.flat(builder, o[i], dtype, d, f"{scope}/flat") for o in operands],
                dtype,
                d,
                f"{scope}/pack",
            )
            for i, d in enumerate(self._devices)
        ]
        first = self._devices[0]
        total = plain_ops.combined(builder, packs, combine, dtype, first, f"{scope}/sum")
        sizes = [math.prod(shape) for shape in shapes]
        parts = plain_ops.parted(builder, total, sizes, dtype, first, f"{scope}/unpack")
        return [
            [plain_ops.reshape(builder, p, s, dtype, first, f"{scope}/whole")] * len(self._devices)
            for p, s in zip(parts, shapes, strict=True)
        ]

    def slice_own(
        self,
        builder: GraphBuilder,
        value: Value,
        layout: Layout,
        dtype: int,
        replica: int,
        name: str,
    ) -> Value:
        """See `Dialect.slice_own`."""
        device = self._devices[replica]
        vector = plain_ops.flat(builder, value, dtype, device, f"{name}/flat")
        return plain_ops.run(builder, vector, *layout.bounds(replica), dtype, device, name)

    def _reduce_scatter_one(
        self,
        builder: GraphBuilder,
        operands: Sequence[Value],
        layout: Layout,
        dtype: int,
        scope: str,
    ) -> list[Value]:
        """A tensor that travels alone is read where it lies."""
        lane = plain_ops.lane_elements(dtype)
        in_rows = layout.size % lane == 0 and layout.shard_size % lane == 0
        if in_rows and layout.size and len(self._devices) > 2:
            return self._reduce_scatter_rows(builder, operands, layout, dtype, scope)
        vectors = [
            plain_ops.flat(builder, operand, dtype, device, f"{scope}/flat")
            for operand, device in zip(operands, self._devices, strict=True)
        ]
        return [
            self._sum_of_runs(builder, vectors, *layout.bounds(r), dtype, device, scope)
            for r, device in enumerate(self._devices)
        ]

    def _reduce_scatter_rows(
        self,
        builder: GraphBuilder,
        operands: Sequence[Value],
        layout: Layout,
        dtype: int,
        scope: str,
    ) -> list[Value]:
        """The same with one split for each replica, where slices would be N times as many ops.

        A split shares its operand's buffer only where each row fills whole alignment units, as
        the rows of a tensor of that many elements do, and every shard begins at a row.
        """
        lane = plain_ops.lane_elements(dtype)
        sizes = [-(-layout.shard_shape(r)[0] // lane) for r in range(len(self._devices))]
        parts = []
        for operand, device in zip(operands, self._devices, strict=True):
            lanes = plain_ops.reshape(builder, operand, (-1, lane), dtype, device, f"{scope}/lanes")
            parts.append(plain_ops.parted(builder, lanes, sizes, dtype, device, f"{scope}/split"))
        totals = []
        for r, device in enumerate(self._devices):
            own = [part[r] for part in parts]
            total = plain_ops.ordered_sum(builder, own, dtype, device, f"{scope}/sum")
            totals.append(plain_ops.flat(builder, total, dtype, device, f"{scope}/flat"))
        return totals

    def _sum_of_runs(
        self,
        builder: GraphBuilder,
        vectors: Sequence[Value],
        start: int,
        stop: int,
        dtype: int,
        device: str,
        scope: str,
    ) -> Value:
        """The sum over replicas of one run of their vectors, on `device`."""
        runs = [
            plain_ops.run(builder, vector, start, stop, dtype, source, f"{scope}/slice")
            for vector, source in zip(vectors, self._devices, strict=True)
        ]
        return plain_ops.ordered_sum(builder, runs, dtype, device, f"{scope}/sum")

    def _pack(
        self,
        builder: GraphBuilder,
        tensors: Sequence[Value],
        layouts: Sequence[Layout],
        dtype: int,
        replica: int,
        scope: str,
    ) -> Value:
        """One replica's tensors in one vector: all parts of owner 0, then all of owner 1, ..."""
        device = self._devices[replica]
        owners = range(len(self._devices))
        parts = []
        for tensor, layout in zip(tensors, layouts, strict=True):
            vector = plain_ops.flat(builder, tensor, dtype, device, f"{scope}/flat")
            sizes = [layout.shard_shape(r)[0] for r in owners]
            parts.append(plain_ops.parted(builder, vector, sizes, dtype, device, f"{scope}/cut"))
        ordered = [part[r] for r in owners for part in parts]
        return plain_ops.joined(builder, ordered, dtype, device, f"{scope}/pack")

"""The oracle: every verb in its plainest form, to hold the other dialects against.

A sum is taken whole, on the first replica, in the order of the replicas; only then is it cut.
Nothing is packed and nothing shares a buffer by design. Slow.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.dialects.replica_copies import CopyOfEachReplica
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import Layout
from tf_wu_shard.placement import Combine


class Reference(CopyOfEachReplica):
    """Replicas in one process, in the most obvious way.

    Attributes:
        name: "reference".
        min_elements: As in-process.
        bucket_bytes: 1: every tensor travels alone.
    """

    name = "reference"
    min_elements = 1024
    bucket_bytes = 1

    def reduce_scatter(
        self,
        builder: GraphBuilder,
        operands: Sequence[Sequence[Value]],
        layouts: Sequence[Layout],
        dtype: int,
        scope: str,
    ) -> list[list[Value]]:
        """See `Dialect.reduce_scatter`."""
        return [
            [
                self.slice_own(builder, total, layout, dtype, r, f"{scope}/cut")
                for r in range(len(self._devices))
            ]
            for total, layout in (
                (self._sum(builder, own, dtype, scope), layout)
                for own, layout in zip(operands, layouts, strict=True)
            )
        ]

    def all_gather(
        self,
        builder: GraphBuilder,
        shards: Sequence[Sequence[Value]],
        layouts: Sequence[Layout],
        dtype: int,
        scope: str,
    ) -> list[list[Value]]:
        """See `Dialect.all_gather`. Each replica puts the tensor together for itself."""
        return [
            [
                plain_ops.reshape(
                    builder,
                    plain_ops.joined(builder, own, dtype, device, f"{scope}/concat"),
                    layout.shape,
                    dtype,
                    device,
                    f"{scope}/whole",
                )
                for device in self._devices
            ]
            for own, layout in zip(shards, layouts, strict=True)
        ]

    def all_reduce(
        self,
        builder: GraphBuilder,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        dtype: int,
        scope: str,
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """See `Dialect.all_reduce`."""
        return [
            [
                plain_ops.reshape(builder, total, shape, dtype, device, f"{scope}/whole")
                for device in self._devices
            ]
            for total, shape in (
                (self._combined(builder, own, combine, dtype, scope), shape)
                for own, shape in zip(operands, shapes, strict=True)
            )
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

    def _combined(
        self,
        builder: GraphBuilder,
        terms: Sequence[Value],
        combine: Combine,
        dtype: int,
        scope: str,
    ) -> Value:
        if combine is Combine.SUM:
            return self._sum(builder, terms, dtype, scope)
        device = self._devices[0]
        return plain_ops.combined(builder, terms, combine, dtype, device, f"{scope}/sum")

    def _sum(self, builder: GraphBuilder, terms: Sequence[Value], dtype: int, scope: str) -> Value:
        total = terms[0]
        for term in terms[1:]:
            inputs, device = [total, term], self._devices[0]
            total = builder.op(
                "AddV2", inputs, name=f"{scope}/sum", device=device, types={"T": dtype}
            )
            plain_ops.keep_order(builder)
        return total

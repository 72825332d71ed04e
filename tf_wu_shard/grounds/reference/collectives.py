"""The oracle: every verb in its plainest form, to hold the other dialects against.

A sum is taken whole, on the first replica, in the order of the replicas; only then is it cut.
Nothing is packed and nothing shares a buffer by design. Slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds import plain_ops
from tf_wu_shard.grounds.in_process.replica_copies import CopyOfEachReplica
from tf_wu_shard.layout import Layout
from tf_wu_shard.placement import Combine
from tf_wu_shard.preferences import Preferences


class Reference(CopyOfEachReplica):
    """Replicas in one process, in the most obvious way.

    Attributes:
        preferences: As in-process, but every tensor travels alone.
    """

    preferences = Preferences(min_elements=1024, bucket_bytes=1)

    def reduce_scatter(
        self, at: Emitter, operands: Sequence[Sequence[Value]], layouts: Sequence[Layout]
    ) -> list[list[Value]]:
        """See `Dialect.reduce_scatter`."""
        found = []
        for own, layout in zip(operands, layouts, strict=True):
            total = self._combined(at, own, Combine.SUM)
            replicas = range(len(self.devices))
            cut = at.within("cut")
            found.append([self.slice_own(cut, total, layout, r) for r in replicas])
        return found

    def all_gather(
        self, at: Emitter, shards: Sequence[Sequence[Value]], layouts: Sequence[Layout]
    ) -> list[list[Value]]:
        """See `Dialect.all_gather`. Each replica puts the tensor together for itself."""
        whole = []
        for own, layout in zip(shards, layouts, strict=True):
            held = [own[r] for r in layout.holders] or own
            replicas = map(at.on, self.devices)
            whole.append(
                [r.reshape(r.concat(held, "concat"), layout.shape, "whole") for r in replicas]
            )
        return whole

    def all_reduce(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """See `Dialect.all_reduce`."""
        found = []
        for own, shape in zip(operands, shapes, strict=True):
            total = self._combined(at, own, combine)
            found.append([at.on(d).reshape(total, shape, "whole") for d in self.devices])
        return found

    def broadcast_from(self, at: Emitter, value: Value) -> list[Value]:
        """See `Uneven.broadcast_from`. Each replica gets a value of its own."""
        return [at.on(device).op("Identity", [value], "received") for device in self.devices]

    def gather_entries(
        self, at: Emitter, parts: Mapping[str, Sequence[Value]]
    ) -> dict[str, list[Value]]:
        """See `Entries.gather_entries`. Each replica makes a list of its own."""
        return plain_ops.lists_of_each(at, self.devices, parts)

    def _combined(self, at: Emitter, terms: Sequence[Value], combine: Combine) -> Value:
        return plain_ops.combined(at.on(self.devices[0]), terms, combine, "sum")

"""A ground of its own, as a user would add one: every exchange goes through the last replica.

Nothing in tf_wu_shard knows it. It packs what a verb is given into one vector on that replica's
device, which the package's own dialects never do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.extending import (
    Combine,
    CopyOfEachReplica,
    Emitter,
    Layout,
    Preferences,
    Value,
)
from tf_wu_shard.grounds import plain_ops

NAME = "through_the_last"


class ThroughTheLast(CopyOfEachReplica):
    """Replicas of one process of which the last one does all the sums."""

    preferences = Preferences(min_elements=32, bucket_bytes=4096, most_buckets=3)

    def reduce_scatter(
        self, at: Emitter, operands: Sequence[Sequence[Value]], layouts: Sequence[Layout]
    ) -> list[list[Value]]:
        """Sums one vector of all tensors, and cuts the shards of each out of it."""
        there, start, shards = at.on(self.devices[-1]), 0, []
        total = self._total(there, operands, Combine.SUM)
        for layout in layouts:
            bounds = [layout.bounds(replica) for replica in range(layout.num_shards)]
            shards.append([there.run(total, start + a, start + b, "shard") for a, b in bounds])
            start += layout.size
        return shards

    def all_gather(
        self, at: Emitter, shards: Sequence[Sequence[Value]], layouts: Sequence[Layout]
    ) -> list[list[Value]]:
        """Puts all tensors into one vector, which every replica cuts for itself."""
        there = at.on(self.devices[-1])
        flat = [
            there.flat(own[replica], "flat")
            for own, layout in zip(shards, layouts, strict=True)
            for replica in layout.holders
        ]
        pack = there.concat(flat, "pack") if flat else None
        whole: list[list[Value]] = []
        start = 0
        for own, layout in zip(shards, layouts, strict=True):
            copies = []
            for replica in map(at.on, self.devices):
                run = own[0] if pack is None else replica.run(pack, start, start + layout.size, "")
                copies.append(replica.reshape(run, layout.shape, "whole"))
            whole.append(copies)
            start += layout.size
        return whole

    def all_reduce(
        self,
        at: Emitter,
        operands: Sequence[Sequence[Value]],
        shapes: Sequence[tuple[int, ...]],
        combine: Combine = Combine.SUM,
    ) -> list[list[Value]]:
        """Sums one vector of all tensors, which every replica cuts for itself."""
        total = self._total(at.on(self.devices[-1]), operands, combine)
        found: list[list[Value]] = []
        start = 0
        for shape in shapes:
            stop = start + math.prod(shape)
            replicas = map(at.on, self.devices)
            found.append([r.reshape(r.run(total, start, stop, ""), shape, "sum") for r in replicas])
            start = stop
        return found

    def _total(self, at: Emitter, operands: Sequence[Sequence[Value]], combine: Combine) -> Value:
        packs = [
            at.concat([at.flat(own[replica], "flat") for own in operands], "pack")
            for replica in range(len(self.devices))
        ]
        return plain_ops.combined(at, packs, combine, "sum")

"""Whole tensors of a stack, each on one worker, by all-to-alls of the strategy's group.

Every worker holds a run of the elements of each tensor; afterwards it holds all runs of some of
them. Workers cut and select at places that differ, as each knows its own; what they exchange, and
in which order, is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tf_wu_shard.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, INT64
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.collective.collectives import (
    in_rows,
    out_of_rows,
    padded,
    side_by_side,
)
from tf_wu_shard.grounds.collective.group import Member
from tf_wu_shard.layout import Layout

# What CollectiveAllToAllV2 is defined for.
_CARRIED = frozenset({BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT32, INT64})


class WorkerStacks:
    """`Stacks` of workers: one worker's half of each exchange."""

    def __init__(self, member: Member, count: int, rank: Callable[[], int]) -> None:
        """Asks nothing yet.

        Args:
            member: What the worker takes part in collectives with.
            count: How many workers there are.
            rank: Asks for the worker's place in the group, which is the shard that it holds.
        """
        self._member = member
        self._count = count
        self._rank = rank

    def carries(self, dtype: int) -> bool:
        """See `Stacks.carries`."""
        return dtype in _CARRIED

    def own_whole(self, at: Emitter, shards: Sequence[Value], layout: Layout) -> list[Value]:
        """See `Stacks.own_whole`."""
        own = at.on(self._member.device)
        runs = [padded(own, shard, layout, self._rank()) for shard in shards]
        each = len(shards) // self._count
        # By owner, by tensor -> by worker whose shards they are, by tensor.
        rows = self._exchanged(own, own.concat(runs, "pack"), each * layout.shard_size)
        tensors = own.split(rows, [layout.shard_size] * each, "unpack", axis=1)
        return [out_of_rows(own, tensor, layout) for tensor in tensors]

    def shards_of_all(self, at: Emitter, own: Sequence[Value], layout: Layout) -> list[Value]:
        """See `Stacks.shards_of_all`."""
        here = at.on(self._member.device)
        rows = [in_rows(here, tensor, layout) for tensor in own]
        pack = side_by_side(here, rows)
        # By worker whose shards they are, by tensor -> by owner, by tensor.
        exchanged = self._exchanged(here, pack, len(own) * layout.shard_size)
        count = len(own) * self._count
        parts = here.split(here.flat(exchanged, "flat"), [layout.shard_size] * count, "unpack")
        held = math.prod(layout.shard_shape(self._rank()))
        if held == layout.shard_size:
            return parts
        return [here.run(part, 0, held, "own") for part in parts]

    def embed_own(self, at: Emitter, shard: Value, layout: Layout, fill: Value) -> Value:
        """See `Stacks.embed_own`."""
        own = at.on(self._member.device)
        start, stop = layout.bounds(self._rank())
        ends = own.constant([[start, layout.size - stop]])
        vector = own.op("PadV2", [shard, ends, fill], "place")
        return own.reshape(vector, layout.shape, "whole")

    def select_own(
        self, at: Emitter, values: Sequence[Value], shape: tuple[int, ...]
    ) -> list[Value]:
        """See `Stacks.select_own`; which those are the worker knows."""
        each = len(values) // self._count
        first = self._rank() * each
        return [*values[first : first + each]]

    def _exchanged(self, at: Emitter, stack: Value, width: int) -> Value:
        """Row s of each worker's result is the row for this worker of what worker s gave."""
        # The op takes one row for each worker, no more and no fewer.
        rows = at.reshape(stack, (self._count, width), "rows")
        return self._member.collective(at, "CollectiveAllToAllV2", rows, "all_to_all")

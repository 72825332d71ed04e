"""Whole tensors of a stack, each on one replica of a TPU program, by all-to-alls.

Every replica holds a shard of each tensor; afterwards it holds all shards of some of them. The
replicas are in the order of the shards that they hold, so that what one receives is already in the
order of the rows. Sent and received is as much as a reduce-scatter of the stack would send, over
all replicas at once: a replica sends every other one something else, so that no axis of the torus
can be done with before the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import all_gather_module, columns
from tf_wu_shard.grounds.tpu.torus import Torus
from tf_wu_shard.layout import TileLayout


class StackExchange:
    """`Stacks` of the replicas of a torus."""

    def __init__(self, torus: Torus) -> None:
        """Puts the replicas in order.

        Args:
            torus: The replicas, and which shard each holds.
        """
        self._count = torus.num_replicas
        self._held = torus.held
        self._order = sorted(range(self._count), key=lambda replica: torus.held[replica])

    def carries(self, dtype: int) -> bool:
        """See `Stacks.carries`."""
        return all_gather_module.element_type(dtype) is not None

    def own_whole(self, at: Emitter, shards: Sequence[Value], layout: TileLayout) -> list[Value]:
        """See `Stacks.own_whole`."""
        rows, width = layout.shard_shape(0)
        # [every tensor, rows of a shard, columns] -> [own tensors, rows of all shards, columns].
        whole = self._all_to_all(at, _packed(at, shards, (rows, width)), 0, 1)
        own = len(shards) // self._count
        parts = _unpacked(at, whole, own, (rows * self._count, width))
        return [columns.whole_of_rows(at, part, layout) for part in parts]

    def shards_of_all(self, at: Emitter, own: Sequence[Value], layout: TileLayout) -> list[Value]:
        """See `Stacks.shards_of_all`."""
        rows, width = layout.shard_shape(0)
        matrices = [columns.rows_of_whole(at, value, layout) for value in own]
        stack = _packed(at, matrices, (rows * self._count, width))
        shards = self._all_to_all(at, stack, 1, 0)
        return _unpacked(at, shards, len(own) * self._count, (rows, width))

    def embed_own(self, at: Emitter, shard: Value, layout: TileLayout, fill: Value) -> Value:
        """See `Stacks.embed_own`."""
        rows, width = layout.shard_shape(0)
        around = columns.filled(at, (rows * layout.num_shards, width), fill)
        begin = columns.own_begin(at, layout)
        matrix = at.op("XlaDynamicUpdateSlice", [around, shard, begin], "place")
        return columns.whole_of_rows(at, matrix, layout)

    def select_own(
        self, at: Emitter, values: Sequence[Value], shape: tuple[int, ...]
    ) -> list[Value]:
        """See `Stacks.select_own`; which those are is known when the program runs."""
        own = len(values) // self._count
        packed = at.reshape(_packed(at, values, shape), (self._count, own, *shape), "runs")
        replica, axis = at.op("XlaReplicaId", [], "replica_id"), at.constant(0)
        place = at.op("GatherV2", [at.constant(list(self._held)), replica, axis], "place")
        return _unpacked(at, at.op("GatherV2", [packed, place, axis], "own"), own, shape)

    def _all_to_all(self, at: Emitter, value: Value, split: int, joined: int) -> Value:
        return at.op(
            "AllToAll",
            [value, at.constant([self._order])],
            "all_to_all",
            split_dimension=split,
            concat_dimension=joined,
            split_count=self._count,
        )


def _packed(at: Emitter, values: Sequence[Value], shape: tuple[int, ...]) -> Value:
    """Tensors of one shape one after the other in a new first dimension."""
    return at.op("Pack", [at.reshape(value, shape, "one") for value in values], "stack", axis=0)


def _unpacked(at: Emitter, stack: Value, count: int, shape: tuple[int, ...]) -> list[Value]:
    """The tensors that `_packed` made one of."""
    found = []
    for number in range(count):
        one = at.block(stack, (number, *(0 for _ in shape)), (1, *shape), "one")
        found.append(at.reshape(one, shape, "one"))
    return found

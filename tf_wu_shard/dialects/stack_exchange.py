"""Whole tensors of a stack, each on one replica of a TPU program, by all-to-alls.

Every replica holds a shard of each tensor; afterwards it holds all shards of some of them. The
replicas are in the order of the shards that they hold, so that what one receives is already in the
order of the rows. Sent and received is as much as a reduce-scatter of the stack would send, over
all replicas at once: a replica sends every other one something else, so that no axis of the torus
can be done with before the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from tf_wu_shard.dialects import columns, plain_ops
from tf_wu_shard.dialects.columns import block
from tf_wu_shard.dialects.torus import Torus
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import RowLayout

_INT32 = 3


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

    def own_whole(
        self,
        builder: GraphBuilder,
        shards: Sequence[Value],
        layout: RowLayout,
        dtype: int,
        scope: str,
    ) -> list[Value]:
        """See `Stacks.own_whole`."""
        rows, width = layout.shard_shape(0)
        stack = _packed(builder, shards, (rows, width), dtype, scope)
        # [every tensor, rows of a shard, columns] -> [own tensors, rows of all shards, columns].
        whole = self._all_to_all(builder, stack, 0, 1, dtype, scope)
        own = len(shards) // self._count
        parts = _unpacked(builder, whole, own, (rows * self._count, width), dtype, scope)
        return [columns.whole_of_rows(builder, part, layout, dtype, scope) for part in parts]

    def shards_of_all(
        self,
        builder: GraphBuilder,
        own: Sequence[Value],
        layout: RowLayout,
        dtype: int,
        scope: str,
    ) -> list[Value]:
        """See `Stacks.shards_of_all`."""
        rows, width = layout.shard_shape(0)
        matrices = [columns.rows_of_whole(builder, value, layout, dtype, scope) for value in own]
        stack = _packed(builder, matrices, (rows * self._count, width), dtype, scope)
        shards = self._all_to_all(builder, stack, 1, 0, dtype, scope)
        count = len(own) * self._count
        return _unpacked(builder, shards, count, (rows, width), dtype, scope)

    def select_own(
        self,
        builder: GraphBuilder,
        values: Sequence[Value],
        shape: tuple[int, ...],
        dtype: int,
        scope: str,
    ) -> list[Value]:
        """See `Stacks.select_own`; which those are is known when the program runs."""
        own = len(values) // self._count
        packed = _packed(builder, values, shape, dtype, scope)
        runs = (self._count, own, *shape)
        packed = plain_ops.reshape(builder, packed, runs, dtype, "", f"{scope}/runs")
        replica = builder.op("XlaReplicaId", [], name=f"{scope}/replica_id", device="")
        axis = builder.constant(0, device="")
        held = builder.constant(list(self._held), device="")
        types = {"Tparams": _INT32, "Tindices": _INT32, "Taxis": _INT32}
        inputs = [held, replica, axis]
        place = builder.op("GatherV2", inputs, name=f"{scope}/place", device="", types=types)
        types["Tparams"] = dtype
        inputs = [packed, place, axis]
        run = builder.op("GatherV2", inputs, name=f"{scope}/own", device="", types=types)
        return _unpacked(builder, run, own, shape, dtype, scope)

    def _all_to_all(
        self, builder: GraphBuilder, value: Value, split: int, joined: int, dtype: int, scope: str
    ) -> Value:
        groups = builder.constant([self._order], device="")
        dimensions = {"split_dimension": split, "concat_dimension": joined}
        return builder.op(
            "AllToAll",
            [value, groups],
            name=f"{scope}/all_to_all",
            device="",
            types={"T": dtype},
            ints={**dimensions, "split_count": self._count},
        )


def _packed(
    builder: GraphBuilder,
    values: Sequence[Value],
    shape: tuple[int, ...],
    dtype: int,
    scope: str,
) -> Value:
    """Tensors of one shape one after the other in a new first dimension."""
    shaped = [plain_ops.reshape(builder, v, shape, dtype, "", f"{scope}/one") for v in values]
    ints = {"N": len(values), "axis": 0}
    return builder.op(
        "Pack", shaped, name=f"{scope}/stack", device="", types={"T": dtype}, ints=ints
    )


def _unpacked(
    builder: GraphBuilder,
    stack: Value,
    count: int,
    shape: tuple[int, ...],
    dtype: int,
    scope: str,
) -> list[Value]:
    """The tensors that `_packed` made one of."""
    found = []
    for number in range(count):
        begin, size = (number, *(0 for _ in shape)), (1, *shape)
        one = block(builder, stack, begin, size, dtype, f"{scope}/one")
        found.append(plain_ops.reshape(builder, one, shape, dtype, "", f"{scope}/one"))
    return found

"""What dialects share whose graphs hold a copy of the update for each replica, on its device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tf_wu_shard.dialects import plain_ops
from tf_wu_shard.dialects.base import CarriedReduction, Owners
from tf_wu_shard.dialects.recognition import recognise_in_process, replica_devices
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.refusals import Refusal


class CopyOfEachReplica:
    """The read half of `Dialect` and the flat cut, for replicas of one process."""

    most_buckets: int | None = None
    weights_in_shards = False
    place = ""
    # Each of them may own an update.
    stacks = None

    def __init__(self, devices: Sequence[str]) -> None:
        """Makes the dialect of one graph.

        Args:
            devices: Per replica, its device.
        """
        self._devices = tuple(devices)

    def copies(self, view: GraphView) -> tuple[str, ...]:
        """See `Dialect.copies`."""
        return replica_devices(view)

    def num_replicas(self, copies: Sequence[str]) -> int:
        """See `Dialect.num_replicas`: every replica has a copy."""
        return len(copies)

    def layout(self, shape: tuple[int, ...], item_bytes: int) -> Layout:
        """See `Dialect.layout`."""
        return flat_layout(shape, len(self._devices), item_bytes)

    def recognise(
        self, view: GraphView, devices: Sequence[str]
    ) -> tuple[list[CarriedReduction], list[Refusal]]:
        """See `Dialect.recognise`."""
        return recognise_in_process(view, devices)

    def adopt(self, nodes: Iterable[Any]) -> None:
        """See `Dialect.adopt`: they name their devices, which is enough."""

    @property
    def owners(self) -> Owners:
        """See `Dialect.owners`."""
        return self

    def reduce(
        self,
        builder: GraphBuilder,
        operands: Sequence[Value],
        owner: int,
        dtype: int,
        scope: str,
    ) -> Value:
        """See `Owners.reduce`. The owner reads every replica's part where it lies, in order."""
        vectors = [
            plain_ops.flat(builder, operand, dtype, device, f"{scope}/flat")
            for operand, device in zip(operands, self._devices, strict=True)
        ]
        return plain_ops.ordered_sum(builder, vectors, dtype, self._devices[owner], f"{scope}/sum")

    def shard_handle(self, builder: GraphBuilder, name: str) -> tuple[Value, Value]:
        """See `Dialect.shard_handle`."""
        handle = plain_ops.handle_input(builder, name)
        return handle, handle

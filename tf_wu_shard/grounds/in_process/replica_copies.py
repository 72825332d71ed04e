"""What dialects share whose graphs hold a copy of the update for each replica, on its device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import CarriedReduction, Entries, Stacks, Uneven
from tf_wu_shard.grounds.in_process.recognise import recognise_in_process
from tf_wu_shard.layout import Layout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import Replicas


class CopyOfEachReplica:
    """The read half of `Dialect` and the flat cut, for replicas of one process.

    Attributes:
        replicas: Who they are.
        devices: Per replica, its device.
    """

    def __init__(self, replicas: Replicas) -> None:
        """Makes the dialect of one graph.

        Args:
            replicas: Who they are; the graph holds a copy of each.
        """
        self.replicas = replicas
        self.devices = replicas.devices

    @property
    def stacks(self) -> Stacks | None:
        """See `Dialect.stacks`. Each of them may own an update."""
        return None

    def recognise(self, view: GraphView) -> tuple[list[CarriedReduction], list[Refusal]]:
        """See `Dialect.recognise`."""
        return recognise_in_process(view, self.replicas)

    def adopt(self, nodes: Iterable[Any]) -> None:
        """See `Dialect.adopt`: they name their devices, which is enough."""

    @property
    def uneven(self) -> Uneven | None:
        """See `Dialect.uneven`."""
        return self

    def reduce_to(self, at: Emitter, operands: Sequence[Value], owner: int) -> Value:
        """See `Uneven.reduce_to`. The owner reads every replica's part where it lies, in order."""
        vectors = [
            at.on(device).flat(operand, "flat")
            for operand, device in zip(operands, self.devices, strict=True)
        ]
        return at.on(self.devices[owner]).ordered_sum(vectors, "sum")

    def shard_of(self, copy: int) -> int:
        """See `Dialect.shard_of`. The graph holds a copy for each shard."""
        return copy

    def slice_own(self, at: Emitter, value: Value, layout: Layout, shard: int) -> Value:
        """See `Dialect.slice_own`."""
        own = at.on(self.devices[shard])
        return own.run(own.flat(value, "flat"), *layout.bounds(shard), "")

    def broadcast_from(self, at: Emitter, value: Value) -> list[Value]:
        """See `Uneven.broadcast_from`. All replicas read the value where it lies."""
        return [value] * len(self.devices)

    @property
    def entries(self) -> Entries | None:
        """See `Dialect.entries`."""
        return self

    def gather_entries(
        self, at: Emitter, parts: Mapping[str, Sequence[Value]]
    ) -> dict[str, list[Value]]:
        """See `Entries.gather_entries`. One list, on the first device, serves all replicas."""
        first = at.on(self.devices[0])
        return {
            name: [first.concat(operands, name)] * len(self.devices)
            for name, operands in parts.items()
        }

    def shard_handle(self, at: Emitter) -> tuple[Value, Value]:
        """See `Dialect.shard_handle`."""
        handle = at.handle_input("")
        return handle, handle

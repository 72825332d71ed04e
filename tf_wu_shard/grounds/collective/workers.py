"""Replicas of other processes beside those of this one: MultiWorkerMirroredStrategy.

A worker's graph holds a copy of the program for each of its replicas, the same on all workers, and
exchanges everything with the others by collectives. Replicas of one worker are a node: they add up
what they have before it travels, so that as much arrives at a worker of several replicas as at one
of a single replica. Which shards are the worker's own is its place in the group of these
collectives, which is learnt from the group itself: TensorFlow orders members by the names of their
tasks, as words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.collective.collectives import Collectives
from tf_wu_shard.grounds.collective.group import Member, between_nodes
from tf_wu_shard.grounds.collective.lists import gathered_lists
from tf_wu_shard.grounds.collective.stacks import WorkerStacks
from tf_wu_shard.grounds.dialect import Stacks, Uneven
from tf_wu_shard.layout import Layout
from tf_wu_shard.preferences import COMPILED_ON_CPUS, Preferences
from tf_wu_shard.replicas import Replicas


class WorkerCollectives(Collectives):
    """One worker's half of every exchange.

    Attributes:
        preferences: A collective takes milliseconds, whatever it moves. So what is small travels
            with others, in larger buckets than within a process, and nothing stays behind that
            would need a collective of its own; on CPUs small steps are not worth it. Measured on
            4 workers, see docs/benchmark.md.
    """

    preferences = Preferences(
        min_elements=1,
        bucket_bytes=8 * 1024 * 1024,
        narrow_sums=True,
        min_step_elements=1_000_000,
        min_compiled=COMPILED_ON_CPUS,
    )

    def __init__(self, replicas: Replicas, rank: Callable[[], int]) -> None:
        """Makes the dialect of one graph.

        Args:
            replicas: Who they are; the graph holds the copies of this worker.
            rank: Asks for this worker's place in the group; all workers ask together.
        """
        super().__init__(replicas)
        self._rank = rank
        if any("GPU" in device for device in replicas.devices):
            # What was measured are CPUs.
            self.preferences = dataclasses.replace(self.preferences, min_step_elements=1)

    @property
    def uneven(self) -> Uneven | None:
        """See `Dialect.uneven`. All workers run one program."""
        return None

    @property
    def stacks(self) -> Stacks | None:
        """See `Dialect.stacks`: there are some of workers of one replica, in a graph with sums."""
        if not self._group or len(self.devices) > 1:
            return None
        return WorkerStacks(self._group[0], self.replicas.total, self._rank)

    def shard_of(self, copy: int) -> int:
        """See `Dialect.shard_of`."""
        return self._rank() * len(self.devices) + copy

    def slice_own(self, at: Emitter, value: Value, layout: Layout, shard: int) -> Value:
        """See `Dialect.slice_own`."""
        own = at.on(self.devices[shard % len(self.devices)])
        return own.run(own.flat(value, "flat"), *layout.bounds(shard), "")

    def gather_entries(
        self, at: Emitter, parts: Mapping[str, Sequence[Value]]
    ) -> dict[str, list[Value]]:
        """See `Entries.gather_entries`. The first replica of a worker speaks for all of them."""
        self._by_collectives()
        own = at.on(self.devices[0])
        here = {name: own.concat(lists, f"{name}/here") for name, lists in parts.items()}
        found = gathered_lists(own, self._group[0], here)
        for other in self._group[1:]:
            for name in ("counts", *here):
                other.stand_aside(at, name)
        return {name: [whole] * len(self.devices) for name, whole in found.items()}

    @property
    def _nodes(self) -> tuple[tuple[int, ...], ...]:
        """See `Collectives`. A worker is one node."""
        return (tuple(range(len(self.devices))),)

    def _members(self, view: GraphView, group: tuple[Member, ...]) -> tuple[Member, ...]:
        """See `Collectives`."""
        return group if len(group) < 2 else between_nodes(view, group, self._num_nodes)

    def _by_collectives(self) -> bool:
        """See `Collectives`. No edge leads to another worker.

        Raises:
            StorageError: If the graph has no collective that shows the group.
        """
        if not self._group:
            raise StorageError(
                "a function that sums nothing over the workers needs a value that lives in shards"
                " on all of them; read the value outside of the function, or hand it over as an"
                " argument"
            )
        return True

"""Replicas of which each is a worker process of its own: MultiWorkerMirroredStrategy.

A worker's graph holds one copy of the program, that of all workers, and exchanges everything with
the others by collectives. Which shard is the worker's own is its place in the group of these, which
is learnt from the group itself: TensorFlow orders members by the names of their tasks, as words.
"""

from __future__ import annotations

from collections.abc import Callable

from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.collective.collectives import Collectives
from tf_wu_shard.grounds.collective.stacks import WorkerStacks
from tf_wu_shard.grounds.dialect import Stacks, Uneven
from tf_wu_shard.layout import Layout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.replicas import Replicas


class WorkerCollectives(Collectives):
    """One worker's half of every exchange.

    Attributes:
        preferences: A collective takes milliseconds, whatever it moves, so that small tensors
            travel together in larger buckets than within a process.
    """

    preferences = Preferences(min_elements=1024, bucket_bytes=4 * 1024 * 1024, narrow_sums=True)

    def __init__(self, replicas: Replicas, rank: Callable[[], int]) -> None:
        """Makes the dialect of one graph.

        Args:
            replicas: Who they are; the graph holds the copy of one.
            rank: Asks for this worker's place in the group; all workers ask together.
        """
        super().__init__(replicas)
        self._rank = rank

    @property
    def uneven(self) -> Uneven | None:
        """See `Dialect.uneven`. All workers run one program."""
        return None

    @property
    def stacks(self) -> Stacks | None:
        """See `Dialect.stacks`. Workers exchange where the graph shows their group."""
        if not self._group:
            return None
        return WorkerStacks(self._group[0], self.replicas.total, self._rank)

    def shard_of(self, copy: int) -> int:
        """See `Dialect.shard_of`."""
        return self._rank()

    def slice_own(self, at: Emitter, value: Value, layout: Layout, shard: int) -> Value:
        """See `Dialect.slice_own`."""
        own = at.on(self.devices[0])
        return own.run(own.flat(value, "flat"), *layout.bounds(shard), "")

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

"""The shards of a slot of which this process keeps one, and every other worker one more.

Whoever wants the whole asks the other workers for theirs, outside of any collective, so that one
worker may read alone: the chief that saves, a line that prints. A write reaches the own shard
alone, as every worker makes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.tensorflow_private import resources
from tf_wu_shard.workers.cluster import WorkerCluster
from tf_wu_shard.workers.shard_exchange import Snapshot


class WriteCounts:
    """How often functions began to write some slots on this worker, and how often they ended that.

    Slots that one function made have one; where both counts are equal, none of them is written.

    Attributes:
        begun: A variable of int64.
        ended: Another.
    """

    def __init__(self) -> None:
        """Starts both at 0."""
        self.begun, self.ended = (resources.Shard((), tf.int64, "/device:CPU:0") for _ in "be")
        with tf.init_scope():
            zero = tf.constant(0, tf.int64)
        resources.refill([self.begun.handle, self.ended.handle], [zero, zero])

    def settled(self) -> int | None:
        """How many writes there were; None while one is under way."""
        with tf.init_scope():
            # What ended had begun: in this order no write is overlooked.
            ended, begun = int(self.ended.value()), int(self.begun.value())
        return ended if begun == ended else None


@dataclasses.dataclass
class OwnShard:
    """What this worker keeps of a slot.

    Attributes:
        variable: The variable's name.
        shard: The shard.
        counts: What functions that write it count.
        writes: How often Python code has written it besides.
        is_writing: Whether Python code is writing it.
    """

    variable: str
    shard: resources.Shard
    counts: WriteCounts
    writes: int = 0
    is_writing: bool = False

    def snapshot(self) -> Snapshot | None:
        """The shard as it is after one step, or None in the midst of one."""
        state = self._state()
        if state is None:
            return None
        with tf.init_scope():
            content = self.shard.value().numpy().tobytes()
        return Snapshot(state, content) if self._state() == state else None

    def _state(self) -> int | None:
        """How often the shard was written; None while it is."""
        steps = self.counts.settled()
        return None if steps is None or self.is_writing else steps + self.writes


class WorkerShards:
    """One slot's shards, on all workers.

    Attributes:
        own: The number of the shard that this worker keeps.
    """

    def __init__(self, layout: AnyLayout, cluster: WorkerCluster, own: OwnShard) -> None:
        """Offers the own shard to the other workers.

        Args:
            layout: How the slot is cut.
            cluster: The workers.
            own: What this worker keeps of it.
        """
        self._cluster = cluster
        self._layout = layout
        self._own = own
        self.own = cluster.rank
        self._offered = cluster.offer(own.variable, own.snapshot)
        # Workers drop a model at times of their own, and one whose program has ended still hands
        # its shards out.
        weakref.finalize(self, cluster.drop, self._offered).atexit = False

    @property
    def counts(self) -> WriteCounts:
        """What functions that write the shard are to count."""
        return self._own.counts

    def values(self) -> tuple[tf.Tensor, ...]:
        """All shards, in order, as they are after one step.

        Raises:
            StorageError: If not all workers answer in time, or they are in the midst of a step.
        """
        dtype = self._own.shard.dtype
        return tuple(
            tf.constant(
                np.frombuffer(content, dtype.as_numpy_dtype),
                dtype,
                self._layout.shard_shape(number),
            )
            for number, content in enumerate(self._cluster.shards(self._offered))
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """While it lasts, the own shard is handed to nobody."""
        self._own.is_writing = True
        try:
            yield
        finally:
            self._own.writes += 1
            self._own.is_writing = False

"""The shards of a slot of which this process keeps some, and every other worker as many more.

Whoever wants the whole asks the other workers for theirs, outside of any collective, so that one
worker may read alone: the chief that saves, a line that prints. A write reaches the own shard
alone, as every worker makes it.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.storage.earlier_shards import EarlierShards
from tf_wu_shard.tensorflow_private import resources, steady_context
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


class OwnShards:
    """What this worker keeps of a slot.

    Attributes:
        variable: The variable's name.
        shards: The shards, one for each of its replicas.
        counts: What functions that write them count.
    """

    def __init__(
        self,
        variable: str,
        shards: tuple[resources.Shard, ...],
        counts: WriteCounts,
        earlier_seconds: float,
    ) -> None:
        """Takes them as they are.

        Args:
            variable: What all workers call the variable.
            shards: The shards.
            counts: What functions that write them count.
            earlier_seconds: How long a worker behind may read what Python code has written since.
        """
        self.variable = variable
        self.shards = shards
        self.counts = counts
        # Per shard, how often Python code began to write it, and how often it ended that.
        self._begun = [0] * len(shards)
        self._ended = [0] * len(shards)
        self._earlier = EarlierShards(earlier_seconds)

    def snapshot(self, writes: int | None = None) -> Snapshot | None:
        """The shards, one after the other, as they are after one step; None in the midst of one.

        Args:
            writes: How many writes a reader has seen. It gets the shards of that moment, where they
                are kept, in place of what they are now.
        """
        # Threads ask that answer other workers.
        with steady_context.in_use():
            earlier = None if writes is None else self._earlier.after(writes)
            if writes is not None and earlier is not None:
                return Snapshot(writes, _content(earlier))
            state = self._state()
            if state is None:
                return None
            values = self._values()
            return Snapshot(state, _content(values)) if self._state() == state else None

    def keep(self) -> None:
        """Keeps the shards as they are, where none is being written, see `EarlierShards`."""
        state = self._state()
        if state is not None:
            self._earlier.keep(state, self._values())

    @contextlib.contextmanager
    def writing(self, place: int) -> Iterator[None]:
        """While it lasts, and until all shards were written as often, they are handed to nobody.

        What they were before is still given to who has seen no later write, see `EarlierShards`.

        Args:
            place: The place of the shard that is written.
        """
        self.keep()
        self._begun[place] += 1
        try:
            yield
        finally:
            self._ended[place] += 1

    def _values(self) -> tuple[tf.Tensor, ...]:
        """The shards' values. They share memory with the shards, until these are written."""
        with tf.init_scope():
            return tuple(shard.value() for shard in self.shards)

    def _state(self) -> int | None:
        """How often each shard was written; None while one is."""
        steps, writes = self.counts.settled(), {*self._begun, *self._ended}
        return None if steps is None or len(writes) > 1 else steps + writes.pop()


def _content(values: tuple[tf.Tensor, ...]) -> bytes:
    return b"".join(value.numpy().tobytes() for value in values)


class WorkerShards:
    """One slot's shards, on all workers.

    Attributes:
        first: The number of the first of the shards that this worker keeps.
    """

    def __init__(self, layout: AnyLayout, cluster: WorkerCluster, own: OwnShards) -> None:
        """Offers the own shards to the other workers.

        Args:
            layout: How the slot is cut.
            cluster: The workers.
            own: What this worker keeps of it.
        """
        self._cluster = cluster
        self._layout = layout
        self._own = own
        self.first = cluster.rank * len(own.shards)
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
        dtype, each = self._own.shards[0].dtype, len(self._own.shards)
        found = []
        for worker, content in enumerate(self._cluster.shards(self._offered)):
            elements, start = np.frombuffer(content, dtype.as_numpy_dtype), 0
            for number in range(worker * each, (worker + 1) * each):
                shape = self._layout.shard_shape(number)
                stop = start + math.prod(shape)
                found.append(tf.constant(elements[start:stop], dtype, shape))
                start = stop
        return tuple(found)

    def keep(self) -> None:
        """Keeps the own shards for workers behind; see `OwnShards.keep`."""
        self._own.keep()

    def writing(self, place: int) -> contextlib.AbstractContextManager[None]:
        """While it lasts, one of the own shards is written; see `OwnShards.writing`."""
        return self._own.writing(place)

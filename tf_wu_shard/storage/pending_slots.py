"""Shards that are made while a function is traced, and become slots' storage once it is sharded.

Answers: `prepare` makes a slot's shards, which hold nothing yet; `commit_all` fills them and frees
what the slots had, all of them or none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.storage import free_pages, shardable
from tf_wu_shard.storage.parts import cut, cut_all
from tf_wu_shard.storage.sharded_slot import ShardedSlot, remember_handles, unshard
from tf_wu_shard.storage.worker_shards import OwnShards, WorkerShards, WriteCounts
from tf_wu_shard.tensorflow_private import resources, sharded_variables
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.traced_only import is_traced_only
from tf_wu_shard.workers.cluster import name_of, worker_cluster


class PendingSlot:
    """Shards that are not yet a slot's storage and hold nothing; dropping it discards them."""

    def __init__(
        self,
        variable: Any,
        layout: AnyLayout,
        shards: tuple[resources.Shard, ...],
        write_counts: WriteCounts | None,
    ) -> None:
        self._variable = variable
        self.layout = layout
        self.shards = shards
        self.write_counts = write_counts

    @property
    def handles(self) -> tuple[tf.Tensor, ...]:
        """The shards' resource handles, eager tensors, by replica."""
        return tuple(shard.handle for shard in self.shards)

    @functools.cached_property
    def packed_handle(self) -> tf.Tensor:
        """One handle for all shards, of which an op on a replica's device sees that replica's."""
        return resources.packed(self.handles)

    def commit(self) -> ShardedSlot:
        """Fills the shards, makes them the variable's storage and frees the components' own.

        Returns:
            The slot. The variable keeps its identity, name, shape, dtype and value: shard `r` holds
            its part of the first component's value, which all share.

        Raises:
            StorageError: If the variable was sharded in the meantime.
        """
        variable = self._variable
        if is_traced_only(variable.distribute_strategy):
            # Nothing is ever run, and the components have no value to take over.
            return ShardedSlot(variable, self.layout, self.shards)
        # Nothing else of what `prepare` checked can change.
        shardable.check_mirrored(variable)
        with tf.init_scope(), tf.device(variable.values[0].device):
            parts = self._own_parts(variable.values[0].value())
        resources.refill(self.handles, parts)
        slot = ShardedSlot(variable, self.layout, self.shards, self._of_workers())
        if "packed_handle" in vars(self):
            vars(slot)["packed_handle"] = self.packed_handle
        sharded_variables.become_sharded(variable, slot)
        remember_handles(slot)
        handles = [original_handle(component) for component in variable.values]
        resources.free(handles, variable.dtype)
        return slot

    def _own_parts(self, value: tf.Tensor) -> list[tf.Tensor]:
        """The parts of the value that this process keeps."""
        if self.write_counts is None:
            return cut_all(value, self.layout)
        first = _first_shard(self._variable)
        return [cut(value, self.layout, first + place) for place in range(len(self.shards))]

    def _of_workers(self) -> WorkerShards | None:
        if self.write_counts is None:
            return None
        cluster = worker_cluster(self._variable.distribute_strategy)
        # Who is behind may come to a read so late, and then read for as long.
        seconds = 2 * cluster.read_seconds
        name = name_of(self._variable.name, self._variable)
        own = OwnShards(name, self.shards, self.write_counts, seconds)
        return WorkerShards(self.layout, cluster, own)


def prepare(
    variable: Any, layout: AnyLayout, write_counts: WriteCounts | None = None
) -> PendingSlot:
    """Makes a slot's shards, without a value; nothing that the user can see changes.

    May be called while a function is traced and inside any strategy scope.

    Args:
        variable: A `MirroredVariable`, one component per shard, some perhaps in other processes.
        layout: How to cut it; `layout.shape` is the variable's shape.
        write_counts: What functions are to count that write the shards, where other workers have
            some; one for all slots that are made together.

    Returns:
        The shards, each on its replica's device.

    Raises:
        StorageError: If the variable cannot be stored so.
    """
    shardable.check(variable, layout)
    replicas = list(enumerate(variable.values))
    # Where nothing is ever run, one shard stands for all, as one component does.
    made = replicas[:1] if is_traced_only(variable.distribute_strategy) else replicas
    first = 0 if write_counts is None else _first_shard(variable)
    # Once for all, as to leave the function that is being traced takes longer than to make one.
    with tf.init_scope():
        shards = [
            resources.Shard(layout.shard_shape(first + replica), variable.dtype, component.device)
            for replica, component in made
        ]
    shards *= len(replicas) // len(made)
    return PendingSlot(variable, layout, tuple(shards), write_counts)


def _first_shard(variable: Any) -> int:
    """The number of the first shard of those that this worker keeps."""
    return worker_cluster(variable.distribute_strategy).rank * len(variable.values)


def commit_all(pending: Iterable[PendingSlot]) -> None:
    """Commits slots one after another, so that beside all storage there is one slot's shards more.

    Args:
        pending: The slots.

    Raises:
        Exception: Whatever kept one of them from being committed; then none of them is.
    """
    done: list[ShardedSlot] = []
    try:
        # Once for all, as to leave the function that is being traced takes its time.
        with tf.init_scope():
            for slot in pending:
                done.append(slot.commit())
    except BaseException:
        for committed in done:
            unshard(committed)
        raise
    free_pages.hand_back(sum(slot.freed_bytes for slot in done))

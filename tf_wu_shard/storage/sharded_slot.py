"""Keeps a mirrored slot variable in one shard per replica while its user sees no difference.

Answers: which sharded slot a captured handle means (`sharded_slot_of`), how it gets its ordinary
storage back (`unshard`). It does not decide which variables are slots, and does not make a traced
function use the shards; how a slot gets them, is in `pending_slots`.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import StorageError
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.storage.parts import cut, join
from tf_wu_shard.storage.replica_views import ReplicaViews
from tf_wu_shard.storage.worker_shards import WorkerShards, WriteCounts
from tf_wu_shard.tensorflow_private import resources, sharded_variables, tpu_graph
from tf_wu_shard.tensorflow_private.distributed_variables import is_exporting, original_handle
from tf_wu_shard.tensorflow_private.sharded_components import storage_of

_APPLY: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "assign": lambda value, operand: operand,
    "assign_add": tf.add,
    "assign_sub": tf.subtract,
}


class ShardedSlot:
    """A slot variable's value, kept in shards.

    The variable's components own the slot; the slot does not keep its variable alive.

    Attributes:
        layout: How the value is cut.
        shards: One per replica of this process, shape `layout.shard_shape(r)`, on its device.
    """

    def __init__(
        self,
        variable: Any,
        layout: AnyLayout,
        shards: tuple[resources.Shard, ...],
        of_workers: WorkerShards | None = None,
    ) -> None:
        """Takes over shards that hold their parts of the value.

        Args:
            variable: The variable.
            layout: How its value is cut.
            shards: This process's.
            of_workers: Those of all workers, where other processes have some.
        """
        self._variable = weakref.ref(variable)
        self.layout = layout
        self.shards = shards
        self._of_workers = of_workers
        self._views = ReplicaViews(layout)

    @property
    def variable(self) -> Any:
        """The user's `MirroredVariable`.

        Raises:
            StorageError: If it no longer exists.
        """
        variable = self._variable()
        if variable is None:
            raise StorageError(
                f"the variable of the sharded slot {self.layout} no longer exists; look the slot"
                " up again through a handle that is in use"
            )
        return variable

    @property
    def handles(self) -> tuple[tf.Tensor, ...]:
        """The shards' resource handles, eager tensors, by replica."""
        return tuple(shard.handle for shard in self.shards)

    @property
    def write_counts(self) -> WriteCounts | None:
        """What functions that write the shards are to count, where other workers have some."""
        return None if self._of_workers is None else self._of_workers.counts

    @functools.cached_property
    def packed_handle(self) -> tf.Tensor:
        """One handle for all shards, of which an op on a replica's device sees that replica's."""
        return resources.packed(self.handles)

    @property
    def freed_bytes(self) -> int:
        """What the whole slot took in this process, on all of its replicas."""
        return len(self.shards) * math.prod(self.layout.shape) * self.shards[0].dtype.size

    def read(self, replica: int | None = None) -> tf.Tensor:
        """Gathers the whole value.

        Args:
            replica: The replica whose component is read; None for the value of all.

        Returns:
            A tensor of shape `layout.shape`.
        """
        if self._of_workers is not None:
            return join(self._of_workers.values(), self.layout)
        return self._views.read(replica, self._values())

    def keep(self) -> None:
        """Lets workers that come later read what there is now, though a function writes next."""
        if self._of_workers is not None:
            self._of_workers.keep()

    def write(self, replica: int | None, change: Callable[[tf.Tensor], tf.Tensor]) -> None:
        """Replaces the whole value by a function of it.

        Args:
            replica: The replica whose component is written; None for all of them.
            change: From the present value to the new one, both of shape `layout.shape`.
        """
        self.write_elementwise(replica, "assign", change(self.read(replica)))

    def write_elementwise(self, replica: int | None, method: str, operand: tf.Tensor) -> None:
        """Applies an elementwise assignment to the value.

        Args:
            replica: The replica whose component is written; None for all of them.
            method: `assign`, `assign_add` or `assign_sub`.
            operand: A tensor of shape `layout.shape`.
        """
        if self._of_workers is not None:
            # Every worker makes the same write, and each of its replicas that of its own shard.
            local = range(len(self.shards)) if replica is None else (replica,)
            for place in local:
                shard, number = self.shards[place], self._of_workers.first + place
                with self._of_workers.writing(place), tf.device(shard.device):
                    getattr(shard, method)(cut(operand, self.layout, number))
            return
        if replica is None:
            self._views.close()
            self._write_shards(range(self.layout.num_shards), method, operand)
            return
        whole = _APPLY[method](self.read(replica), operand)
        before = self._values()
        self._write_shards(self._views.targets(replica, before), "assign", whole)
        self._views.wrote(replica, whole, before, self._values())

    def _values(self) -> tuple[tf.Tensor, ...]:
        return tuple(shard.value() for shard in self.shards)

    def _write_shards(self, targets: Iterable[int], method: str, operand: tf.Tensor) -> None:
        for index in targets:
            shard = self.shards[index]
            with tf.device(shard.device):
                getattr(shard, method)(cut(operand, self.layout, index))


def sharded_slot_of(handle: Any) -> ShardedSlot | None:
    """Finds the sharded slot whose variable has a component with this handle.

    Args:
        handle: The component's original handle, as a traced function captures it.

    Returns:
        The slot; None when the handle's variable is not sharded. None also while a SavedModel is
        being written: functions traced for that file keep using the variable itself, for which the
        file has the whole value, and must not know the shards.
    """
    storage = None if is_exporting() else storage_of(handle)
    return storage if isinstance(storage, ShardedSlot) else None


# Variables of a TPUStrategy in shards, by the id of the packed handle that they were born with and
# keep; the variable's components own the slot.
_by_packed_handle: weakref.WeakValueDictionary[int, ShardedSlot] = weakref.WeakValueDictionary()

# The same, by the ids of their shards' handles, the packed one among them.
_by_shard: weakref.WeakValueDictionary[int, ShardedSlot] = weakref.WeakValueDictionary()


def remember_handles(slot: ShardedSlot) -> None:
    """Lets `slot_of_packed` and `slot_of_shard` find a slot, if it is a TPUStrategy's."""
    packed = tpu_graph.packed_handle(slot.variable)
    if packed is not None:
        _by_packed_handle[id(packed)] = slot
        for handle in (*slot.handles, slot.packed_handle):
            _by_shard[id(handle)] = slot


def slot_of_packed(handle: Any) -> ShardedSlot | None:
    """The slot whose variable has this packed handle, or None; see `sharded_slot_of`."""
    return None if is_exporting() else _by_packed_handle.get(id(handle))


def slot_of_shard(handle: Any) -> ShardedSlot | None:
    """The slot of a TPUStrategy of which this is a shard's handle, or that of all shards."""
    return _by_shard.get(id(handle))


def unshard(slot: ShardedSlot) -> None:
    """Gives a slot's variable its ordinary storage back, every component the whole value.

    A function that was traced onto the shards must be traced again; until then it fails, since
    the shards hold no value any more.

    Args:
        slot: A committed slot.

    Raises:
        StorageError: If its variable no longer exists or is not sharded any more.
    """
    variable = slot.variable
    handles = [original_handle(component) for component in variable.values]
    if storage_of(handles[0]) is not slot:
        raise StorageError(f"variable {variable.name!r} is not stored in this slot any more")
    with tf.init_scope():
        whole = slot.read()
        sharded_variables.become_plain(variable)
        if _by_packed_handle.pop(id(tpu_graph.packed_handle(variable)), None) is not None:
            for handle in (*slot.handles, slot.packed_handle):
                _by_shard.pop(id(handle), None)
        resources.refill(handles, [whole] * len(handles))
        resources.free(slot.handles, variable.dtype)

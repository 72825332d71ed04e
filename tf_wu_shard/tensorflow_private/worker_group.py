"""Which worker of a strategy this process is, and in what order its collectives have the workers.

Answers are for MultiWorkerMirroredStrategy. What workers tell each other beside collectives is in
`worker_cluster`.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils
from tensorflow.python.ops import collective_ops

from tf_wu_shard.errors import StorageError
from tf_wu_shard.tensorflow_private import steady_context
from tf_wu_shard.tensorflow_private.instance_keys import InstanceKeys

_BETWEEN_NODES = 1_000_000

# TensorFlow counts the keys of its groups from 1, and a worker's own is 2 ** 30 and above.
_FIRST_NAMED = 1 << 29


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another worker of a strategy.

    Attributes:
        task: Its name, as in "/job:worker/replica:0/task:1".
        address: Its host and port; None where the cluster gives something else.
    """

    task: str
    address: tuple[str, int] | None


class GroupOfWorkers:
    """Takes part in sums over all workers, apart from the collectives of a strategy's steps.

    Its threads may be in a sum while steps are in others.
    """

    def __init__(self, strategy: tf.distribute.Strategy, name: str) -> None:
        """Makes a group of its own.

        Args:
            strategy: A MultiWorkerMirroredStrategy; the first device of each worker takes part.
            name: The same on all workers; no other group has it.
        """
        launcher = strategy.extended._cross_device_ops._launchers[0]
        self._device = launcher._device
        self._options = launcher._options
        self._size = count_of(strategy)
        self._key = _FIRST_NAMED + zlib.crc32(name.encode()) % _FIRST_NAMED
        self._keys = InstanceKeys(self._key, self._device)

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """The sum of what all workers give, once they have; all take part in the same order.

        Args:
            tensor: Of a type, shape and element type that is the same on all workers.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        return self._take_part(tf.raw_ops.CollectiveReduceV2, tensor, merge_op="Add", final_op="Id")

    def gather(self, tensor: tf.Tensor) -> tf.Tensor:
        """What all workers give, one after the other; likewise.

        Args:
            tensor: Of a shape and element type that is the same on all workers.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        return self._take_part(tf.raw_ops.CollectiveGatherV2, tensor)

    def _take_part(
        self, collective: Callable[..., tf.Tensor], tensor: tf.Tensor, **attributes: str
    ) -> tf.Tensor:
        with steady_context.in_use(), tf.device(self._device):
            return collective(
                input=tensor,
                group_size=self._size,
                group_key=self._key,
                instance_key=self._keys.following(),
                ordering_token=[],
                communication_hint=self._options.implementation.value,
                timeout_seconds=self._options.timeout_seconds or 0.0,
                **attributes,
            )


def replicas_of(strategy: tf.distribute.Strategy) -> int:
    """How many replicas this process has; every other one has as many."""
    return len(strategy.extended.worker_devices)


def count_of(strategy: tf.distribute.Strategy) -> int:
    """How many workers there are."""
    return int(strategy.num_replicas_in_sync) // replicas_of(strategy)


def number_of(strategy: tf.distribute.Strategy) -> int:
    """The number of this worker among all of a strategy."""
    first = int(strategy.extended._get_replica_id_in_sync_group(0))
    return first // replicas_of(strategy)


def key_between_nodes(key: int, place: int) -> int:
    """The key of the group that the replicas of one place have, one of each worker.

    Args:
        key: The key of the group of all replicas. TensorFlow counts these from 1.
        place: The replicas' place within their worker.

    Returns:
        A key that TensorFlow's counting does not come to.
    """
    return _BETWEEN_NODES * (1 + place) + key


def members_of(strategy: tf.distribute.Strategy) -> tuple[int, ...]:
    """The workers' numbers, in the order in which collectives have the members of their group.

    TensorFlow orders them by the names of their tasks as words, or by the links of their devices;
    so it is asked. All workers must ask, or those that do wait.

    Args:
        strategy: A MultiWorkerMirroredStrategy.

    Raises:
        StorageError: If replicas of one place are in another order than those of another.
        tf.errors.OpError: If another worker is gone.
    """
    orders = set()
    with tf.init_scope():
        launchers = strategy.extended._cross_device_ops._launchers
        for place, launcher in enumerate(launchers):
            key_of_all, options = launcher._group_key, launcher._options
            with tf.device(launcher._device):
                gathered = collective_ops.all_gather_v2(
                    # Of a type that every implementation gathers.
                    tf.constant([number_of(strategy)], tf.float32),
                    count_of(strategy),
                    key_of_all if len(launchers) == 1 else key_between_nodes(key_of_all, place),
                    InstanceKeys(key_of_all, launcher._device).following(),
                    communication_hint=options.implementation.value,
                    timeout=options.timeout_seconds,
                    ordering_token=launcher._get_ordering_token(),
                )
            orders.add(tuple(np.array(gathered).astype(int).tolist()))
    if len(orders) > 1:
        raise StorageError(
            f"the devices of the workers are in different orders in their groups: {sorted(orders)};"
            " train with one device a worker, or with the sharded update off"
        )
    return orders.pop()


def counter_of(strategy: tf.distribute.Strategy) -> Callable[[], int]:
    """What tells how many collectives of a strategy's own this worker has begun.

    Workers that took part in the same ones have begun as many.

    Args:
        strategy: A MultiWorkerMirroredStrategy; what is returned does not keep it alive.
    """
    keys = strategy.extended._cross_device_ops._launchers[0]._collective_keys
    first = cross_device_utils.INSTANCE_KEY_START_NUMBER

    def begun() -> int:
        with keys._lock:
            following = [
                key for group in keys._instance_key_table.values() for key in group.values()
            ]
        return sum(key - first for key in following)

    return begun


def peers_of(strategy: tf.distribute.Strategy) -> dict[int, Peer]:
    """The other workers, by number; none where the cluster has other tasks than the strategy.

    Args:
        strategy: A MultiWorkerMirroredStrategy.
    """
    cluster = strategy.cluster_resolver.cluster_spec()
    tasks = [
        (job, index)
        for job in ("chief", "worker")
        if job in cluster.jobs
        for index in cluster.task_indices(job)
    ]
    if len(tasks) != count_of(strategy):
        return {}
    return {
        number: Peer(
            f"/job:{job}/replica:0/task:{index}", _address(cluster.task_address(job, index))
        )
        for number, (job, index) in enumerate(tasks)
        if number != number_of(strategy)
    }


def _address(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() else None

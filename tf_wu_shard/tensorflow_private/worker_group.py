"""Which worker of a strategy this process is, and in what order its collectives have the workers.

Answers are for MultiWorkerMirroredStrategy with one replica a worker. What workers tell each other
beside collectives is in `worker_cluster`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another worker of a strategy.

    Attributes:
        task: Its name, as in "/job:worker/replica:0/task:1".
        address: Its host and port; None where the cluster gives something else.
    """

    task: str
    address: tuple[str, int] | None


def number_of(strategy: tf.distribute.Strategy) -> int:
    """The number of this process's replica among all of a strategy."""
    return int(strategy.extended._get_replica_id_in_sync_group(0))


def members_of(strategy: tf.distribute.Strategy) -> tuple[int, ...]:
    """The replicas' numbers, in the order in which collectives have the members of their group.

    TensorFlow orders them by the names of their tasks as words, or by the links of their devices;
    so it is asked. All workers must ask, or those that do wait.

    Args:
        strategy: A MultiWorkerMirroredStrategy of one replica a worker.

    Raises:
        tf.errors.OpError: If another worker is gone.
    """
    with tf.init_scope():
        own = tf.constant([number_of(strategy)], tf.int32)
        gathered = _launcher(strategy, own)._all_gather(own, None)
    return tuple(np.array(gathered).tolist())


def counter_of(strategy: tf.distribute.Strategy) -> Callable[[], int]:
    """What tells how many collectives this worker has begun.

    Workers that took part in the same ones have begun as many.

    Args:
        strategy: A MultiWorkerMirroredStrategy of one replica a worker; what is returned does not
            keep it alive.
    """
    with tf.init_scope():
        keys = _launcher(strategy, tf.constant(0))._collective_keys
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
        strategy: A MultiWorkerMirroredStrategy of one replica a worker.
    """
    cluster = strategy.cluster_resolver.cluster_spec()
    tasks = [
        (job, index)
        for job in ("chief", "worker")
        if job in cluster.jobs
        for index in cluster.task_indices(job)
    ]
    if len(tasks) != strategy.num_replicas_in_sync:
        return {}
    return {
        number: Peer(
            f"/job:{job}/replica:0/task:{index}", _address(cluster.task_address(job, index))
        )
        for number, (job, index) in enumerate(tasks)
        if number != number_of(strategy)
    }


def _launcher(strategy: tf.distribute.Strategy, value: tf.Tensor) -> Any:
    """What begins the collectives of this worker, for values that are where a value is."""
    return strategy.extended._get_cross_device_ops(value)._launchers[0]


def _address(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdecimal() else None

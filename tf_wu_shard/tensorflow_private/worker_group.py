"""Which worker of a strategy this process is, and in what order its collectives have the workers.

Answers are for MultiWorkerMirroredStrategy with one replica a worker. What workers tell each other
beside collectives is in `worker_cluster`.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf


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
        launcher = strategy.extended._get_cross_device_ops(own)._launchers[0]
        gathered = launcher._all_gather(own, None)
    return tuple(np.array(gathered).tolist())

"""Strategies of the logical CPU devices of a process, made before TensorFlow asks for devices."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf


def mirrored_strategy(
    cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
) -> tf.distribute.Strategy:
    """A MirroredStrategy of two replicas, which have one order of summing."""
    _divide_cpu(2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops)


def worker_strategy(replicas: int = 1, bytes_per_pack: int = 0) -> tf.distribute.Strategy:
    """The strategy of this process's worker, TF_CONFIG set.

    Args:
        replicas: How many replicas a worker has, each on a logical CPU device.
        bytes_per_pack: How many bytes of gradients travel together; 0 for all of them.
    """
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=bytes_per_pack)
    if replicas == 1:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    strategies = sys.modules["tensorflow.python.distribute.collective_all_reduce_strategy"]

    def devices(self: Any, cluster_resolver: Any, worker_device: str) -> Any:
        # TensorFlow takes one CPU device a worker, however many there are.
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(replicas)), "CPU"

    strategies.CollectiveAllReduceExtended._initialize_local_devices = devices
    _divide_cpu(replicas)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _divide_cpu(count: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    each = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    tf.config.set_logical_device_configuration(cpu, each)

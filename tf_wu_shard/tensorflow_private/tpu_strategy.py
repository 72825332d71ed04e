"""A `TPUStrategy` with no TPU: how it is made, and on which devices its replicas are put.

Answers: a resolver that lists TPU devices that do not exist, and a strategy whose replicas
stand on other devices. What runs there is not known here: TensorFlow still traces graphs for a TPU,
and nothing but a TPU runs those as they are.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.tpu import tpu_strategy_util
from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata

_TASK = "/job:localhost/replica:0/task:0"

# The address of a TPU that is connected to this process.
_LOCAL_TPU = ""


class AbsentTPU(tf.distribute.cluster_resolver.ClusterResolver):
    """Resolves to TPU devices of this process that are not there."""

    def __init__(self, num_devices: int, topology: tf.tpu.experimental.Topology | None) -> None:
        """Describes them.

        Args:
            num_devices: How many.
            topology: Where in a torus they sit, or None where that is not known.
        """
        self._num_devices = num_devices
        self._topology = topology

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """What `TPUStrategy` asks a resolver."""
        count = self._num_devices
        return TPUSystemMetadata(
            num_cores=count,
            num_hosts=1,
            num_of_cores_per_host=count,
            topology=self._topology,
            devices=[
                session._DeviceAttributes(f"{_TASK}/device:TPU:{index}", "TPU", 0, index)
                for index in range(count)
            ],
        )

    def cluster_spec(self) -> tf.train.ClusterSpec:
        """This process, as scripts like to print it; `master` says that it is local."""
        return tf.train.ClusterSpec({"worker": ["localhost"]})

    def master(self, *_: Any, **__: Any) -> str:
        """The address of the TPU's host: this process."""
        return _LOCAL_TPU

    def get_master(self) -> str:
        """The address of the TPU's host, by the name that older scripts use."""
        return _LOCAL_TPU

    @property
    def tpu(self) -> str:
        """The TPU's name."""
        return _LOCAL_TPU

    @property
    def topology(self) -> tf.tpu.experimental.Topology | None:
        """Where the devices sit, or None."""
        return self._topology

    def num_accelerators(self, *_: Any, **__: Any) -> dict[str, int]:
        """How many devices there are, by kind."""
        return {"TPU": self._num_devices}


def replica_coordinates(strategy: Any) -> list[tuple[int, ...]] | None:
    """Where in its torus each replica of a TPUStrategy sits, or None where that is not known.

    Args:
        strategy: One core a replica.
    """
    extended = strategy.extended
    assignment = extended._device_assignment
    if assignment is not None:
        return [tuple(map(int, cores[0])) for cores in assignment.core_assignment]
    resolver, metadata = extended._tpu_cluster_resolver, extended._tpu_metadata
    systems = tpu_strategy_util._INITIALIZED_TPU_SYSTEMS
    topology = metadata.topology or systems.get(getattr(resolver, "_tpu", None))
    if topology is None:
        return None
    if isinstance(topology, bytes):
        topology = tf.tpu.experimental.Topology(serialized=topology)
    places = [
        tf.DeviceSpec.from_string(device.name)
        for device in metadata.devices
        if "device:TPU:" in device.name
    ]
    found = topology.device_coordinates
    return [tuple(map(int, found[place.task, place.device_index])) for place in places]


# Where functions run what they put nowhere else: iterators, and all that is not for replicas.
HOST = f"{_TASK}/device:CPU:0"


def replica_cpus(count: int) -> list[str]:
    """Names of `count` logical CPU devices, one for each replica.

    None of them is the host. TensorFlow has every replica of a variable written by a write on the
    host, unless something on a device of one of them waits for it: then it has just that one. On a
    TPU nothing does, as its host is none of its cores; so it must be here.
    """
    return [f"{_TASK}/device:CPU:{index}" for index in range(1, count + 1)]


def cores_per_replica(extended: Any) -> int:
    """Over how many cores each replica of a TPUStrategy spreads, from its `extended`."""
    return int(extended._tpu_devices.shape[1])


def put_on(extended: Any, devices: Sequence[str]) -> None:
    """Puts the replicas of a strategy on other devices than those its resolver named.

    Args:
        extended: The `extended` of a TPUStrategy with one core a replica.
        devices: For each replica its device; none of them is `HOST` if anything is to run.
    """
    extended._tpu_devices = np.array([[device] for device in devices], dtype=object)
    extended._host_device = HOST
    extended._device_input_worker_devices = collections.OrderedDict({HOST: list(devices)})
    extended._host_input_worker_devices = collections.OrderedDict({HOST: [HOST] * len(devices)})


def tpu_topology(
    mesh: tuple[int, int, int], coordinates: Sequence[tuple[int, int, int, int]]
) -> tf.tpu.experimental.Topology:
    """TensorFlow's own description of a slice, all of it in one task.

    Args:
        mesh: Chips along x, y and z.
        coordinates: Each device's x, y, z and place on its chip.
    """
    per_chip = 1 + max(core for *_, core in coordinates)
    return tf.tpu.experimental.Topology(
        mesh_shape=[*mesh, per_chip],
        device_coordinates=np.array(coordinates, np.int32)[np.newaxis],
    )

"""A TPU that is not there is described as TensorFlow would, and its replicas stand elsewhere."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private.tpu_strategy import (
    HOST,
    AbsentTPU,
    cores_per_replica,
    put_on,
    replica_coordinates,
    replica_cpus,
    tpu_topology,
)

# Two chips of two cores, the second core of a chip after the first of both.
COORDINATES = [(0, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (1, 0, 0, 1)]


@pytest.fixture(scope="module")
def topology() -> tf.tpu.experimental.Topology:
    return tpu_topology((2, 1, 1), COORDINATES)


def strategy(metadata: Any, assignment: Any = None) -> Any:
    """A TPUStrategy as it keeps what it asked its resolver."""
    return types.SimpleNamespace(
        extended=types.SimpleNamespace(
            _device_assignment=assignment,
            _tpu_cluster_resolver=types.SimpleNamespace(_tpu="no such TPU"),
            _tpu_metadata=metadata,
        )
    )


def test_a_resolver_lists_as_many_devices_as_it_was_told(
    topology: tf.tpu.experimental.Topology,
) -> None:
    absent = AbsentTPU(4, topology)
    metadata = absent.get_tpu_system_metadata()
    assert (metadata.num_cores, metadata.num_hosts, metadata.num_of_cores_per_host) == (4, 1, 4)
    assert [device.name.rpartition("/")[2] for device in metadata.devices] == [
        f"device:TPU:{index}" for index in range(4)
    ]
    assert metadata.topology is absent.topology is topology
    assert absent.num_accelerators() == {"TPU": 4}
    assert absent.master() == absent.get_master() == absent.tpu == ""
    assert absent.cluster_spec().as_dict() == {"worker": ["localhost"]}


def test_a_topology_has_each_device_where_it_sits(topology: tf.tpu.experimental.Topology) -> None:
    assert topology.mesh_shape.tolist() == [2, 1, 1, 2]
    assert topology.device_coordinates.tolist() == [[list(place) for place in COORDINATES]]
    assert topology.num_tasks == 1


def test_replicas_sit_where_they_were_assigned_or_else_where_their_devices_do(
    topology: tf.tpu.experimental.Topology,
) -> None:
    metadata = AbsentTPU(4, topology).get_tpu_system_metadata()
    assert replica_coordinates(strategy(metadata)) == COORDINATES
    serialized = metadata._replace(topology=topology.serialized())
    assert replica_coordinates(strategy(serialized)) == COORDINATES
    cores = np.array([[[1, 0, 0, 1]], [[0, 0, 0, 0]]])
    assigned = strategy(metadata, types.SimpleNamespace(core_assignment=cores))
    assert replica_coordinates(assigned) == [(1, 0, 0, 1), (0, 0, 0, 0)]


def test_where_no_topology_is_known_nobody_knows_where_replicas_sit() -> None:
    assert replica_coordinates(strategy(AbsentTPU(4, None).get_tpu_system_metadata())) is None


def test_replicas_are_put_on_devices_of_their_own_beside_the_host() -> None:
    devices = replica_cpus(3)
    assert len({*devices, HOST}) == 4
    extended = types.SimpleNamespace(_tpu_devices=np.array([["t0", "t1"]]))
    assert cores_per_replica(extended) == 2
    put_on(extended, devices)
    assert cores_per_replica(extended) == 1
    assert extended._tpu_devices.reshape(-1).tolist() == devices
    assert extended._host_device == HOST
    assert dict(extended._device_input_worker_devices) == {HOST: devices}
    assert dict(extended._host_input_worker_devices) == {HOST: [HOST] * 3}

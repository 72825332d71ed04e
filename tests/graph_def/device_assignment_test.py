"""Where replicas stand is what the user or the program says, and one of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.errors import OptionError
from tf_wu_shard.graph_def.device_assignment import assigned_devices
from tf_wu_shard.graph_def.program import Program
from tf_wu_shard.grounds.tpu.torus import one_group
from tf_wu_shard.tensorflow_private.tpu_strategy import tpu_topology
from tf_wu_shard.topology import parse_topology

REPLICAS = 4


def assignment(order: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    """Four replicas on the chips of a 2x2 slice."""
    chips = parse_topology("v5e:2x2")
    topology = tpu_topology(chips.mesh, chips.coordinates)
    cores = np.array(chips.coordinates, np.int32)[list(order), None, :]
    return tf.tpu.experimental.DeviceAssignment(topology, cores)


def program(own: Any | None = None) -> Program:
    """A program that was made with an assignment, or with none."""
    metadata = tf.compat.v1.NodeDef(name="metadata", op="TPUReplicateMetadata")
    if own is not None:
        metadata.attr["topology"].s = own.topology.serialized()
        metadata.attr["device_assignment"].list.i.extend(own.core_assignment.flatten().tolist())
    return Program("cluster", REPLICAS, metadata, (), None)


def test_of_a_program_that_says_nothing_nothing_is_known_and_that_is_said() -> None:
    found = assigned_devices(program(), None, None)
    assert found.torus == one_group(REPLICAS) and found.devices == ("",) * REPLICAS
    assert ["device_assignment" in found.notes[0], "devices" in found.notes[1]] == [True, True]


@pytest.mark.parametrize("said_by_user", [True, False])
def test_an_assignment_gives_axes_and_devices(said_by_user: bool) -> None:
    given = assignment()
    own, told = (None, given) if said_by_user else (given, None)
    found = assigned_devices(program(own), told, None)
    assert [len(groups) for groups in found.torus.axes] == [2, 2] and not found.notes
    assert found.devices == tuple(given.tpu_device(replica=n) for n in range(REPLICAS))


def test_devices_that_are_named_are_taken() -> None:
    devices = [f"/job:worker/task:{n}/device:TPU:0" for n in range(REPLICAS)]
    found = assigned_devices(program(), None, devices)
    assert found.devices == tuple(devices) and len(found.notes) == 1


@pytest.mark.parametrize(
    ("own", "given", "devices", "said"),
    [
        (None, "somewhere", None, "not str"),
        (assignment(), assignment((1, 0, 2, 3)), None, "not the one that"),
        (None, None, ["/device:TPU:0"], "each of the 4 replicas"),
        (None, None, "/device:TPU:0", "each of the 4 replicas"),
        (None, None, [0, 1, 2, 3], "each of the 4 replicas"),
        (None, None, ["/device:TPU:0"] * 3 + ["nowhere:at:all"], "names no device"),
    ],
)
def test_what_contradicts_the_program_or_is_none_is_refused(
    own: Any, given: Any, devices: Any, said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        assigned_devices(program(own), given, devices)


def test_an_assignment_of_another_number_of_replicas_is_refused() -> None:
    fewer = assignment((0, 1))
    with pytest.raises(OptionError, match="places 2 replicas of 1 cores"):
        assigned_devices(program(), fewer, None)

"""Where the replicas of a TPU program stand: in the torus, and on which devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_wu_shard.errors import OptionError
from tf_wu_shard.graph.op import attribute_in
from tf_wu_shard.graph_def.program import Program
from tf_wu_shard.grounds.tpu.torus import Torus, one_group, torus_of


class DeviceAssignment(NamedTuple):
    """Where replicas stand.

    Attributes:
        torus: Their groups along its axes.
        devices: For each its device; "" where it is not known.
        notes: What is not known of them, and what that means.
    """

    torus: Torus
    devices: tuple[str, ...]
    notes: tuple[str, ...]


def assigned_devices(
    program: Program,
    assignment: tf.tpu.experimental.DeviceAssignment | None,
    devices: Sequence[str] | None,
) -> DeviceAssignment:
    """Where a program's replicas stand, from the user, else from the program itself.

    Args:
        program: The program.
        assignment: What the user says of their places.
        devices: What the user says of their devices.

    Raises:
        OptionError: The user speaks of another number of replicas, of other places than the graph,
            or of devices that are none.
    """
    count = program.num_replicas
    own = _own_assignment(program)
    if assignment is not None:
        _check_assignment(assignment, own, count)
    assignment = assignment or own
    if devices is not None:
        named = _checked_devices(devices, count)
    elif assignment is not None:
        named = tuple(assignment.tpu_device(replica=replica) for replica in range(count))
    else:
        named = ("",) * count
    notes = [
        "it is not known where in the torus the replicas sit: they are taken for one axis, and over"
        " 16 or more the TPU compiler may turn reduce-scatters back into all-reduces; pass"
        " device_assignment"
    ] * (assignment is None)
    notes += [
        "the replicas' devices are not known: TensorFlow places the shards with the replicas that"
        " use them; to say where, pass devices"
    ] * ("" in named)
    if assignment is None:
        return DeviceAssignment(one_group(count), named, tuple(notes))
    coordinates = [tuple(map(int, cores[0])) for cores in assignment.core_assignment]
    return DeviceAssignment(torus_of(coordinates), named, tuple(notes))


def _own_assignment(program: Program) -> tf.tpu.experimental.DeviceAssignment | None:
    """The device assignment that the program was made with."""
    topology = attribute_in(program.metadata.attr, "topology").s
    flat = list(attribute_in(program.metadata.attr, "device_assignment").list.i)
    if not topology or not flat:
        return None
    cores = np.array(flat, np.int32).reshape((program.num_replicas, 1, -1))
    known = tf.tpu.experimental.Topology(serialized=topology)
    return tf.tpu.experimental.DeviceAssignment(known, cores)


def _check_assignment(assignment: Any, own: Any | None, count: int) -> None:
    if not isinstance(assignment, tf.tpu.experimental.DeviceAssignment):
        raise OptionError(
            "device_assignment must be a tf.tpu.experimental.DeviceAssignment, not"
            f" {type(assignment).__name__}"
        )
    if (assignment.num_replicas, assignment.num_cores_per_replica) != (count, 1):
        raise OptionError(
            f"device_assignment places {assignment.num_replicas} replicas of"
            f" {assignment.num_cores_per_replica} cores; the graph's TPU program has {count} of 1"
        )
    if own is not None and not np.array_equal(own.core_assignment, assignment.core_assignment):
        raise OptionError(
            "device_assignment is not the one that the graph's TPU program was made with; leave it"
            " out, the graph holds its own"
        )


def _checked_devices(devices: Sequence[str], count: int) -> tuple[str, ...]:
    given = list(devices) if not isinstance(devices, str) else [devices]
    if len(given) != count or not all(isinstance(device, str) for device in given):
        raise OptionError(
            f"devices must name the device of each of the {count} replicas, not {devices!r}"
        )
    for device in given:
        try:
            tf.DeviceSpec.from_string(device)
        except ValueError as error:
            raise OptionError(f"devices: {device!r} names no device ({error})") from error
    return tuple(given)

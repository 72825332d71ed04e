"""A real `tf.distribute.TPUStrategy` whose replicas are logical CPU devices of this process.

One more logical device is the host of these replicas, as a TPU's host is none of its cores.

Everything up to the traced graph is TensorFlow's own: Keras, the strategy, its variables. Only what
is handed to the runtime is lowered (`lowering`), at the last moment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.emulation.lowering import has_cluster, lower
from tf_wu_shard.errors import EmulationError, OptionError
from tf_wu_shard.tensorflow_private import function_definition, tpu_script, tpu_strategy
from tf_wu_shard.topology import parse_topology

# An optimizer that drops control edges which others imply. Off: among them may be the edge by which
# the host waits for its write to a variable, without which not every replica's copy is written
# (see `tpu_strategy.replica_cpus`).
_DEPENDENCIES = "dependency_optimization"

# One waits for the next batch, one works.
_THREADS_A_DEVICE = 2


def emulated_tpu_strategy(
    num_replicas: int, topology: str | None = None
) -> tf.distribute.TPUStrategy:
    """Makes a TPUStrategy that needs no TPU: each replica runs on a logical CPU device.

    Call it before anything else makes TensorFlow look at its devices, as it splits the CPU into
    logical devices, one for each replica and one for the host; or split it yourself, with
    `tf.config.set_logical_device_configuration`.

    Args:
        num_replicas: How many replicas, at least 1.
        topology: The slice that the replicas pretend to be, such as "v5e:2x4"; it has as many
            devices. None for a TPU of which no topology is known.

    Returns:
        The strategy, for `fit`, `evaluate`, `predict`, `run`, variables and checkpoints as on a
        TPU.

    Raises:
        OptionError: `num_replicas` is not a positive integer, the topology does not exist or has
            another number of devices.
        EmulationError: TensorFlow has already made fewer logical CPU devices.
    """
    if isinstance(num_replicas, bool) or not isinstance(num_replicas, int) or num_replicas < 1:
        raise OptionError(f"num_replicas must be an integer of at least 1, not {num_replicas!r}")
    where = None if topology is None else torus(topology, num_replicas)
    make_logical_cpus(num_replicas)
    install()
    strategy = tf.distribute.TPUStrategy(tpu_strategy.AbsentTPU(num_replicas, where))
    put_on_cpus(strategy.extended)
    return strategy


def put_on_cpus(extended: Any) -> None:
    """Puts the replicas of a TPUStrategy, given its `extended`, on logical CPU devices.

    Raises:
        EmulationError: Its replicas spread over several cores, or there are too few devices.
    """
    cores = tpu_strategy.cores_per_replica(extended)
    if cores > 1:
        raise EmulationError(
            f"the device assignment spreads each replica over {cores} cores, which cannot be"
            " emulated; build it with num_cores_per_replica=1"
        )
    _counts.add(len(extended.worker_devices))
    tpu_strategy.put_on(extended, _devices(len(extended.worker_devices)))


def torus(topology: str, num_devices: int) -> tf.tpu.experimental.Topology:
    """TensorFlow's description of a slice.

    Raises:
        OptionError: There is no such slice, or it has another number of devices.
    """
    found = parse_topology(topology)
    if found.num_devices != num_devices:
        raise OptionError(
            f"topology {topology!r} has {found.num_devices} devices, not {num_devices}"
        )
    return tpu_strategy.tpu_topology(found.mesh, found.coordinates)


def make_logical_cpus(num_replicas: int) -> None:
    """Splits the CPU into logical devices enough for replicas and their host, unless it is already.

    Where nothing says how many ops may run at a time, and TensorFlow has not started, as many may
    as these devices need.

    Raises:
        EmulationError: TensorFlow has started with fewer; they can no longer be made.
    """
    count = num_replicas + 1
    _make_threads(count)
    physical = tf.config.list_physical_devices("CPU")[0]
    configured = tf.config.get_logical_device_configuration(physical)
    if configured is not None and len(configured) >= count:
        return
    try:
        parts = [tf.config.LogicalDeviceConfiguration()] * count
        tf.config.set_logical_device_configuration(physical, parts)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) >= count:
            return
        raise EmulationError(
            f"{num_replicas} replicas and their host need {count} logical CPU devices, and"
            f" TensorFlow has started with {len(tf.config.list_logical_devices('CPU'))}; make the"
            " strategy before anything else uses TensorFlow"
        ) from error


def _make_threads(count: int) -> None:
    """Lets each of `count` devices wait for its next batch while others work.

    TensorFlow's default is one thread a core. On a few cores all of them may come to wait for
    iterators, and none is left to bring what they wait for.
    """
    if (
        tf.config.threading.get_inter_op_parallelism_threads()
        or "TF_NUM_INTEROP_THREADS" in os.environ
    ):
        return
    # Too late once TensorFlow has started, and then it is as its user has it.
    with contextlib.suppress(RuntimeError):
        enough = max(os.cpu_count() or 1, _THREADS_A_DEVICE * count)
        tf.config.threading.set_inter_op_parallelism_threads(enough)


# Functions that hold a TPU cluster, or call one that does. Their names are never used again.
_emulated: set[str] = set()

# How many replicas the emulated strategies have.
_counts: set[int] = set()


def install() -> None:
    """Lets functions with TPU clusters run on logical CPU devices from now on."""
    function_definition.install(_concerns, _lower)
    if _DEPENDENCIES not in tf.config.optimizer.get_experimental_options():
        tf.config.optimizer.set_experimental_options({_DEPENDENCIES: False})


def _concerns(graph: Any) -> bool:
    called = function_definition.called_functions(graph)
    return not _emulated.isdisjoint(called) or has_cluster(function_definition.op_types(graph))


def _lower(definition: Any, find: function_definition.Find) -> tuple[Any, Sequence[Any]]:
    counts = {n.attr["num_replicas"].i for n in definition.node_def if has_cluster([n.op])}
    if counts and counts.isdisjoint(_counts):
        # No emulated strategy has so many replicas: it is another's, which may only trace.
        return definition, ()
    lowered = lower(definition, find, _devices)
    _emulated.add(definition.signature.name)
    return lowered.definition, lowered.added


def _devices(count: int) -> list[str]:
    """Where the replicas run.

    Raises:
        EmulationError: There are too few logical CPU devices.
    """
    found = len(tf.config.list_logical_devices("CPU"))
    if found <= count:
        raise EmulationError(
            f"a TPU cluster of {count} replicas and their host need {count + 1} logical CPU"
            f" devices; there are {found}"
        )
    return tpu_strategy.replica_cpus(count)


def emulate_tpus(num_replicas: int, topology: str | None = None) -> None:
    """Lets whatever this process does with TPUs from now on run on logical CPU devices.

    Every resolver finds the same TPU, every TPUStrategy is an emulated one. Call it before
    anything uses TensorFlow; it holds for the life of the process.

    Args:
        num_replicas: How many TPU devices there are to be.
        topology: The slice they form, such as "v5e:2x4". None for a plain ring.

    Raises:
        OptionError: The topology does not exist or has another number of devices.
        EmulationError: TensorFlow has already made fewer logical CPU devices.
    """
    if topology is None:
        ring = [(index, 0, 0, 0) for index in range(num_replicas)]
        where = tpu_strategy.tpu_topology((num_replicas, 1, 1), ring)
    else:
        where = torus(topology, num_replicas)
    make_logical_cpus(num_replicas)
    install()
    tpu_script.install(num_replicas, where, put_on_cpus)

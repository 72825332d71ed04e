"""Where replicas would run that nobody has started, and where those of a live variable do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import OptionError
from tf_wu_shard.grounds.dialect import CarriedReduction, Dialect
from tf_wu_shard.grounds.tpu.torus import one_group, torus_of
from tf_wu_shard.inspection.one_device.what_if import ReplicasInProcess, ReplicasOnTpu
from tf_wu_shard.tensorflow_private import tpu_strategy
from tf_wu_shard.topology import parse_topology

# The topology of TPU cores of which it is not known where they sit.
UNKNOWN = "unknown"

Gradients = Sequence[CarriedReduction]


def ground_of(replicas: int, topology: str | None, gradients: Gradients) -> Dialect:
    """The ground of some number of replicas.

    Args:
        replicas: How many.
        topology: The TPU slice that they are, `UNKNOWN` for TPU cores anywhere, None for replicas
            of one process.
        gradients: What they sum.

    Raises:
        OptionError: There is no such slice, it has another number of replicas, or they are fewer
            than two.
    """
    if replicas < 2:
        raise OptionError(
            f"the number of replicas must be at least 2, not {replicas}: one has nobody to share an"
            " update with"
        )
    if topology is None:
        return ReplicasInProcess(replicas, gradients)
    if topology == UNKNOWN:
        return ReplicasOnTpu(one_group(replicas), gradients)
    slice_ = parse_topology(topology)
    if slice_.num_devices != replicas:
        raise OptionError(f"{topology} has {slice_.num_devices} replicas, not {replicas}")
    return ReplicasOnTpu(torus_of(slice_.coordinates), gradients)


def replicas_of(variable: Any) -> int:
    """On how many replicas a variable lives."""
    return len(getattr(variable, "values", (variable,)))


def is_on_tpus(variable: Any) -> bool:
    """Whether a variable lives on the replicas of a TPUStrategy."""
    strategy = getattr(variable, "distribute_strategy", None)
    return isinstance(strategy, tf.distribute.TPUStrategy)


def live_ground(variable: Any, gradients: Gradients) -> Dialect:
    """The ground of the replicas that a variable lives on.

    Args:
        variable: A variable of a `tf.distribute` strategy.
        gradients: What they sum.
    """
    replicas = replicas_of(variable)
    if not is_on_tpus(variable):
        return ReplicasInProcess(replicas, gradients)
    places = tpu_strategy.replica_coordinates(variable.distribute_strategy)
    known = places is not None and len(places) == replicas
    return ReplicasOnTpu(torus_of(places) if places and known else one_group(replicas), gradients)

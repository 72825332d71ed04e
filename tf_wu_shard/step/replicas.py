"""The dialect that the replicas of a captured step use."""

from __future__ import annotations

from absl import logging

from tf_wu_shard.grounds import registry
from tf_wu_shard.grounds.collective.collectives import Collectives
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.in_process.recognise import replica_devices
from tf_wu_shard.grounds.reference.collectives import Reference
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import one_group, torus_of
from tf_wu_shard.replicas import Replicas, in_this_process
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.tensorflow_private import tpu_strategy

_ON_GPUS = (
    "tf_wu_shard: the sharded update was tried on logical CPU devices; on GPUs it has not been run."
    " Compare a few steps with the flag off, and choose ShardingOptions(dialect='collective')"
    " for replicas on several GPUs"
)

_BUILT_IN: dict[str, registry.MakeDialect] = dict(
    zip(registry.BUILT_IN, (InProcess, Reference, Collectives), strict=True)
)


def dialect_of(captured: Captured, name: str) -> Dialect:
    """How the replicas of a graph exchange data.

    Args:
        captured: The graph and its variables.
        name: Which dialect the user asked for, where all replicas share one process.
    """
    if captured.cluster is None:
        return in_process_dialect(in_this_process(replica_devices(captured.view)), name)
    return tpu_dialect(captured.cluster, captured)


def in_process_dialect(replicas: Replicas, name: str = "auto") -> Dialect:
    """How replicas of one process exchange data.

    Args:
        replicas: Who they are.
        name: Which dialect the user asked for.
    """
    if any("GPU" in device for device in replicas.devices):
        logging.log_first_n(logging.WARNING, _ON_GPUS, 1)
    make = _BUILT_IN.get(name) or registry.registered(name)
    assert make is not None, f"options name the dialect {name!r}, which nobody registered"
    return make(replicas)


def tpu_dialect(cluster: Cluster, captured: Captured) -> TpuCluster:
    """How the replicas of a TPU program exchange data, along the axes of their torus.

    Where it is not known where they sit, all are taken for one axis.

    Args:
        cluster: The program.
        captured: The graph that it lies in, and its variables.
    """
    strategies = [variable.distribute_strategy for variable in captured.variables.values()]
    places = tpu_strategy.replica_coordinates(strategies[0]) if strategies else None
    if places is None or len(places) != cluster.num_replicas:
        return TpuCluster(cluster.name, one_group(cluster.num_replicas))
    return TpuCluster(cluster.name, torus_of(places))

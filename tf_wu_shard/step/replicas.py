"""The dialect that the replicas of a captured step use."""

from __future__ import annotations

from absl import logging

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dtypes import BFLOAT16
from tf_wu_shard.grounds import registry
from tf_wu_shard.grounds.collective.collectives import Collectives
from tf_wu_shard.grounds.collective.workers import WorkerCollectives
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.in_process.recognise import replicas_in
from tf_wu_shard.grounds.reference.collectives import Reference
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import one_group, torus_of
from tf_wu_shard.replicas import Replicas
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.tensorflow_private import tpu_strategy
from tf_wu_shard.workers.cluster import WorkerCluster, worker_cluster

_ON_GPUS = (
    "tf_wu_shard: the sharded update was tried on logical CPU devices; on GPUs it has not been run."
    " Compare a few steps with the flag off, or run tools/gpu_check.py"
)


def _warn_of_gpus(replicas: Replicas) -> None:
    """Says once that no GPU has run it, where one is going to."""
    if any("GPU" in device for device in replicas.devices):
        logging.log_first_n(logging.WARNING, _ON_GPUS, 1)


def _automatic(replicas: Replicas) -> Dialect:
    """Collectives between GPUs, where an edge is a copy; edges where memory is shared."""
    on_gpus = bool(replicas.devices) and all("GPU" in device for device in replicas.devices)
    return Collectives(replicas) if on_gpus else InProcess(replicas)


_BUILT_IN: dict[str, registry.MakeDialect] = dict(
    zip(registry.BUILT_IN, (_automatic, Reference, Collectives), strict=True)
)


def dialect_of(captured: Captured, options: ShardingOptions) -> Dialect:
    """How the replicas of a graph exchange data.

    Args:
        captured: The graph and its variables.
        options: What the user asked for.
    """
    if captured.cluster is not None:
        return tpu_dialect(captured.cluster, captured)
    workers, replicas = workers_of(captured), replicas_in(captured.view)
    made: Dialect
    if workers is not None:
        _warn_of_gpus(replicas)
        made = WorkerCollectives(replicas, lambda: workers.rank)
    else:
        made = in_process_dialect(replicas, options.dialect)
    if isinstance(made, Collectives) and options.wire_dtype is not None:
        made.wire_dtype = BFLOAT16
    return made


def workers_of(captured: Captured) -> WorkerCluster | None:
    """The workers that train a graph; None where nobody else does.

    Args:
        captured: The graph and its variables.
    """
    for ref in captured.view.variables.values():
        if ref.replicas_elsewhere and ref.key in captured.variables:
            return worker_cluster(captured.variables[ref.key].distribute_strategy)
    return None


def in_process_dialect(replicas: Replicas, name: str = "auto") -> Dialect:
    """How replicas of one process exchange data.

    Args:
        replicas: Who they are.
        name: Which dialect the user asked for.
    """
    _warn_of_gpus(replicas)
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

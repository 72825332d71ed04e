"""The ground that a traced step runs on: which dialect its replicas speak, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dialects.base import Dialect
from tf_wu_shard.dialects.in_process import InProcess
from tf_wu_shard.dialects.recognition import replica_devices
from tf_wu_shard.dialects.reference import Reference
from tf_wu_shard.dialects.torus import one_group, torus_of
from tf_wu_shard.dialects.tpu import TpuCluster
from tf_wu_shard.graph.capture import Captured
from tf_wu_shard.graph.tpu_cluster import Cluster
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.tensorflow_private import tpu_strategy

_IN_PROCESS: dict[str, Callable[[Sequence[str]], Dialect]] = {
    "auto": InProcess,
    "reference": Reference,
}


def dialect_of(
    view: GraphView,
    cluster: Cluster | None,
    captured: Captured,
    options: ShardingOptions,
) -> Dialect:
    """How the replicas of a graph talk to each other.

    Args:
        view: The graph.
        cluster: The TPU program in it, if there is one.
        captured: The same graph and its variables.
        options: What the user asked for.
    """
    if cluster is None:
        return in_process_dialect(replica_devices(view), options)
    return tpu_dialect(cluster, captured)


def in_process_dialect(devices: Sequence[str], options: ShardingOptions | None) -> Dialect:
    """How replicas of one process talk to each other.

    Args:
        devices: Per replica, its device.
        options: What the user asked for; None where the flag is off.
    """
    return _IN_PROCESS[options.dialect if options is not None else "auto"](devices)


def tpu_dialect(cluster: Cluster, captured: Captured) -> TpuCluster:
    """How the replicas of a TPU program talk to each other, along the axes of their torus.

    Where it is not known where they sit, all are taken for one axis.
    """
    strategies = [variable.distribute_strategy for variable in captured.variables.values()]
    places = tpu_strategy.replica_coordinates(strategies[0]) if strategies else None
    if places is None or len(places) != cluster.num_replicas:
        return TpuCluster(cluster.name, one_group(cluster.num_replicas))
    return TpuCluster(cluster.name, torus_of(places))

"""The TPU cluster of a graph: its name, its size, and what in its form keeps its updates whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import decoded
from tf_wu_shard.grounds.tpu.obstacles import cores_obstacle, obstacle
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.refusals import Refusal

_REPLICAS = "num_replicas"


class Cluster(NamedTuple):
    """A TPU cluster.

    Attributes:
        name: As its ops carry it.
        num_replicas: How many replicas run it.
        refusal: Why its updates cannot be sharded, or None.
    """

    name: str
    num_replicas: int
    refusal: Refusal | None

    def against(self, graph_def: Any) -> Refusal | None:
        """What keeps updates whole in a GraphDef that holds the cluster's program."""
        return self.refusal or obstacle(graph_def, self.name)


def cluster_by(metadata: Sequence[Any]) -> Cluster | None:
    """The TPU cluster that a graph's TPUReplicateMetadata nodes stand for.

    Args:
        metadata: Their NodeDefs, which are not changed.

    Returns:
        The cluster; None where there is none. Where there are several, each is a program of its
        own, and the first one's refusal says so.
    """
    if not metadata:
        return None
    first = metadata[0].attr
    name = decoded(first[PROGRAM].s) if PROGRAM in first else ""
    count = first[_REPLICAS].i if _REPLICAS in first else 0
    refusal = cores_obstacle(metadata[0])
    if len(metadata) > 1:
        refusal = refusals.Topology.SEVERAL_PROGRAMS.at(count=len(metadata))
    return Cluster(name, count, refusal)

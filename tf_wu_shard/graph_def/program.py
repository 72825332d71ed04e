"""The TPU program in a GraphDef: which ops it is made of, and what keeps its updates whole.

`tf.compat.v1.tpu.replicate` marks the ops of a program in the flat graph. Reads a GraphDef by duck
typing, imports no TensorFlow and does not know what the ops compute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.graph.op import decoded
from tf_wu_shard.grounds.tpu.cluster import Cluster, cluster_by
from tf_wu_shard.grounds.tpu.obstacles import obstacle
from tf_wu_shard.grounds.tpu.ops import METADATA, PROGRAM
from tf_wu_shard.refusals import Refusal

# TensorFlow 1's loops are cycles of plain ops.
_LOOP = frozenset({"Enter", "RefEnter", "NextIteration", "RefNextIteration"})


@dataclasses.dataclass(frozen=True)
class Program:
    """A TPU program.

    Attributes:
        name: As its ops carry it; "" where there is none.
        num_replicas: How many replicas run it.
        metadata: The NodeDef of its TPUReplicateMetadata, or None.
        nodes: Its NodeDefs, in the order of the graph.
        refusal: Why its updates cannot be sharded, or None.
    """

    name: str
    num_replicas: int
    metadata: Any
    nodes: tuple[Any, ...]
    refusal: Refusal | None


def program_of(graph_def: Any) -> Program:
    """The TPU program of a GraphDef; where there is not exactly one, the refusal says so."""
    found = [node for node in graph_def.node if node.op == METADATA]
    cluster = cluster_by(found)
    if cluster is None:
        return Program("", 0, None, (), _none_here(graph_def))
    nodes = tuple(node for node in graph_def.node if _mark(node) == cluster.name)
    refusal = _refusal(graph_def, len(found), cluster, nodes)
    return Program(cluster.name, cluster.num_replicas, found[0], nodes, refusal)


def _mark(node: Any) -> str | None:
    return decoded(node.attr[PROGRAM].s) if PROGRAM in node.attr else None


def _none_here(graph_def: Any) -> Refusal:
    for function in graph_def.library.function:
        if any(node.op == METADATA for node in function.node_def):
            return refusals.Topology.PROGRAM_IN_FUNCTION.at(function=function.signature.name)
    return refusals.Topology.NO_PROGRAM.at()


def _refusal(graph_def: Any, count: int, cluster: Cluster, nodes: Iterable[Any]) -> Refusal | None:
    if count > 1:
        return refusals.Topology.SEVERAL_PROGRAMS_IN_GRAPH.at(count=count)
    if cluster.refusal is not None:
        return cluster.refusal
    if cluster.num_replicas < 2:
        return refusals.Topology.PROGRAM_OF_ONE_REPLICA.at()
    for node in nodes:
        if node.op in _LOOP:
            return refusals.Topology.LOOP_OF_TENSORFLOW_1.at(op_type=node.op, op=node.name)
    return obstacle(graph_def, cluster.name)

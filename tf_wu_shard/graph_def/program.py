"""The TPU program in a GraphDef: which ops it is made of, and what keeps its updates whole.

`tf.compat.v1.tpu.replicate` marks the ops of a program in the flat graph. Reads a GraphDef by duck
typing, imports no TensorFlow and does not know what the ops compute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tf_wu_shard.graph.op import attribute_in, decoded
from tf_wu_shard.graph.tpu_obstacles import MARK, METADATA, cores_obstacle, obstacle

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
        refusal: Why its updates cannot be sharded, or "".
    """

    name: str
    num_replicas: int
    metadata: Any
    nodes: tuple[Any, ...]
    refusal: str


def program_of(graph_def: Any) -> Program:
    """The TPU program of a GraphDef; where there is not exactly one, the refusal says so."""
    found = [node for node in graph_def.node if node.op == METADATA]
    if not found:
        return Program("", 0, None, (), _none_here(graph_def))
    metadata = found[0]
    name = decoded(attribute_in(metadata.attr, MARK).s)
    nodes = tuple(node for node in graph_def.node if _mark(node) == name)
    refusal = _refusal(graph_def, found, nodes)
    return Program(name, attribute_in(metadata.attr, "num_replicas").i, metadata, nodes, refusal)


def _mark(node: Any) -> str | None:
    return decoded(node.attr[MARK].s) if MARK in node.attr else None


def _none_here(graph_def: Any) -> str:
    for function in graph_def.library.function:
        if any(node.op == METADATA for node in function.node_def):
            return (
                f"its TPU program stands inside of function {function.signature.name!r};"
                " only one that lies in the graph itself is rewritten"
            )
    return f"it holds no TPU program (no {METADATA}: was it made by tf.compat.v1.tpu.replicate?)"


def _refusal(graph_def: Any, found: list[Any], nodes: Iterable[Any]) -> str:
    metadata = found[0]
    if len(found) > 1:
        return f"it holds {len(found)} TPU programs, which may use the same variables"
    if spread := cores_obstacle(metadata):
        return spread
    if attribute_in(metadata.attr, "num_replicas").i < 2:
        return "it runs on one replica: no gradient is reduced"
    for node in nodes:
        if node.op in _LOOP:
            return (
                f"it holds a loop of TensorFlow 1 ({node.op} {node.name!r}); build the graph after"
                " tf.compat.v1.enable_control_flow_v2()"
            )
    return obstacle(graph_def, decoded(attribute_in(metadata.attr, MARK).s))

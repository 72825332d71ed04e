"""Which part of the step each node belongs to, read off the data flow and never off names.

An update begins where no matrix product follows any more that a further reduction needs: the
reductions from which none can be reached are those of the gradients (a batch normalisation's sums
over the replicas are followed by the next layer's products). What comes after a gradient reduction,
and what only that needs, is the update; what a reduction's operand needs is the forward and
backward pass. Nodes that merely move values about, next to a collective, are the collectives' glue.
An update with matrix products of its own (Muon) that sums norms of what they yield is seen as part
of the backward pass.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from tf_wu_shard.graph.calls import all_named_by
from tf_wu_shard.graph.nodes import sources_of
from tf_wu_shard.reachable import reachable

_REDUCTIONS = frozenset({"XlaAllReduce", "XlaReduceScatter"})
_COLLECTIVES = _REDUCTIONS | {"XlaCallModule"}

_PRODUCTS = (
    *("MatMul", "BatchMatMul", "Einsum", "XlaDot", "XlaConv"),
    *("Conv2D", "Conv3D", "DepthwiseConv2d"),
)

_MOVES = frozenset(
    {
        *("Reshape", "Transpose", "ExpandDims", "Squeeze", "Pad", "PadV2", "ConcatV2", "Pack"),
        *("Slice", "StridedSlice", "Split", "SplitV", "Unpack", "XlaDynamicSlice"),
        *("XlaDynamicUpdateSlice", "XlaOptimizationBarrier", "Identity", "IdentityN"),
        *("XlaReplicaId", "Const"),
    }
)


class Scope(enum.Enum):
    """A part of the step."""

    GRADIENTS = "forward and backward"
    UPDATE = "update"
    GLUE = "collectives' glue"
    OTHER = "other"


def scopes_of(graph_def: Any) -> dict[str, Scope]:
    """Divides the nodes of a replica's body.

    Args:
        graph_def: The body's nodes and functions, its collectives in XLA's form.

    Returns:
        The part of each node that belongs to one, by name. All of a function that a node calls
        belongs where the node does.
    """
    nodes = {node.name: node for node in graph_def.node}
    inputs = {name: sources_of(node) for name, node in nodes.items()}
    readers: dict[str, list[str]] = {name: [] for name in nodes}
    for name, sources in inputs.items():
        for source in sources:
            readers[source].append(name)
    calling = _callers(graph_def, _COLLECTIVES)
    reducing = _callers(graph_def, _REDUCTIONS)
    reductions = {name for name, node in nodes.items() if node.op in _REDUCTIONS} | reducing
    needed = _reachable(reductions, inputs)
    followed = _reachable((name for name in needed if _is_product(nodes[name])), inputs)
    reductions -= followed
    if not reductions:
        return {}
    operands = {source for name in reductions - reducing for source in inputs[name]}
    gradients = _reachable(operands, inputs)
    after = _reachable(reductions, readers)
    update = (_reachable(after, inputs) - gradients) | after
    collectives = {n for n, node in nodes.items() if node.op in _COLLECTIVES or n in calling}
    glue = {
        n
        for neighbours in (inputs, readers)
        for n in _reachable(collectives - calling, neighbours, lambda n: nodes[n].op in _MOVES)
    }
    found = dict.fromkeys(gradients, Scope.GRADIENTS) | dict.fromkeys(update, Scope.UPDATE)
    return found | dict.fromkeys(glue, Scope.GLUE)


def scope_at(op_name: str, scopes: Mapping[str, Scope]) -> Scope:
    """The part that an instruction belongs to.

    Args:
        op_name: The name in its metadata: that of a node, or of one inside the functions that a
            node calls, after the node's own.
        scopes: What `scopes_of` returned.
    """
    name = op_name
    while name:
        if name in scopes:
            return scopes[name]
        name = name.rpartition("/")[0]
    return Scope.OTHER


def _is_product(node: Any) -> bool:
    return bool(node.op.startswith(_PRODUCTS))


def _callers(graph_def: Any, op_types: frozenset[str]) -> set[str]:
    """Names of the nodes that call a function with such an op in it, however deep."""
    functions = {f.signature.name: f.node_def for f in graph_def.library.function}
    holds = {name for name, body in functions.items() if any(node.op in op_types for node in body)}
    while True:
        more = {
            name
            for name, body in functions.items()
            if name not in holds and any(holds.intersection(all_named_by(node)) for node in body)
        }
        if not more:
            return {node.name for node in graph_def.node if holds.intersection(all_named_by(node))}
        holds |= more


def _reachable(
    start: Iterable[str],
    neighbours: Mapping[str, Iterable[str]],
    passes: Any = None,
) -> set[str]:
    """Everything that `start` leads to, itself included, through nodes that pass."""
    return set(reachable(start, lambda name: filter(passes, neighbours[name])))

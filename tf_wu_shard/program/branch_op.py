"""What a branch op takes and calls, asked of the graph that it stands in."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from tf_wu_shard.graph.calls import PLAIN_CALLS, callee_names, first_argument, is_call
from tf_wu_shard.graph.nodes import data_inputs, source_of
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable


def values_of(node: Any, used: Set[int], view: GraphView) -> list[int]:
    """The numbers of a branch op's arguments that are no variables, nor of the operands `used`."""
    first = first_argument(node.op)
    return [
        slot - first
        for slot, text in enumerate(data_inputs(node))
        if slot >= first and slot not in used and source_of(text) not in view.variables
    ]


def called_by(view: GraphView, op: Op) -> frozenset[str]:
    """Names of the functions that branches of an op call, at any depth, without the branches."""

    def calls(name: str) -> Iterable[Any]:
        definition = view.functions.get(name)
        nodes = definition.node_def if definition is not None else ()
        return (node for node in nodes if is_call(node.op))

    def called(name: str) -> Iterable[str]:
        return (inner for call in calls(name) for inner in callee_names(call))

    inside = [*reachable(callee_names(op.node), called)]
    of_plain = (call for name in inside for call in calls(name) if call.op in PLAIN_CALLS)
    return frozenset(name for call in of_plain for name in callee_names(call))

"""Whether a function that the gate let through is one for passes, asked of what was captured."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tf_wu_shard.gate import Handles, Sight
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.in_process.recognise import reduced_values
from tf_wu_shard.layout import Layout
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.variables import READ, WRITES
from tf_wu_shard.step.accesses import STATEFUL_BRANCHES, writes_in_call
from tf_wu_shard.storage import sharded_slot
from tf_wu_shard.tensorflow_private import function_graph

# What can be done with the value of a slot just as well.
_ON_VALUES = (
    frozenset({READ, "VarIsInitializedOp"})
    | frozenset(WRITES)
    | frozenset(FUSED)
    | STATEFUL_BRANCHES
)


def is_eligible(graph: Any, view: GraphView, sight: Sight) -> bool:
    """Whether passes are to work on a function.

    Args:
        graph: The FuncGraph.
        view: What it holds.
        sight: What the gate saw of it.
    """
    if sight.in_shards and _is_left_to_its_function(graph, view, sight.in_shards):
        return False
    return sight.trains or _hands_sums_to(view, sight.calls)


def _is_left_to_its_function(graph: Any, view: GraphView, in_shards: Handles) -> bool:
    """Whether a graph is a branch, and the function that takes it redirects its slots in shards.

    That function may write the branch out and shard the update in it, and knows all that the branch
    does. A branch that reduces gradients itself, or does to a slot what its value does not allow,
    is not left to it.
    """
    if not function_graph.is_branch(graph):
        return False
    slots = [sharded_slot.sharded_slot_of(handle) for handle, _ in in_shards]
    return (
        all(slot is not None and isinstance(slot.layout, Layout) for slot in slots)
        and all(
            set(function_graph.consumer_types(placeholder)) <= _ON_VALUES
            for _, placeholder in in_shards
        )
        and not reduced_values(view)
    )


def _hands_sums_to(view: GraphView, calls: Collection[str]) -> bool:
    """Whether functions that a graph calls write mirrored variables with what it sums itself.

    None of that is sharded, but its author may ask why. A function that sums a metric, say, and
    calls another that averages weights hands no sum to it.
    """
    writers = {name for name in calls if writes_in_call(view, view.ops[name])}
    if not writers:
        return False
    stack, seen = [*reduced_values(view)], set()
    while stack:
        value = stack.pop()
        for op, _ in view.consumers(value):
            if op.name in writers:
                return True
            if op.name not in seen:
                seen.add(op.name)
                stack += view.results(op.name)
    return False

"""Whether a function that the gate let through is one for passes, asked of what was captured."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from tf_wu_shard.gate import Sight
from tf_wu_shard.graph.calls import LOOPS, PLAIN_CALLS, STATEFUL_BRANCHES
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.in_process.recognise import reduced_values
from tf_wu_shard.layout import Layout, RowLayout
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.sparse import READ_ROWS
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import WRITES
from tf_wu_shard.step.accesses import writes_in_call
from tf_wu_shard.storage import captured_slots, sharded_slot
from tf_wu_shard.tensorflow_private import function_graph

# What can be done with the value of a slot just as well.
_ON_VALUES = (
    frozenset({READ, READ_ROWS, "VarIsInitializedOp", *WRITES})
    | STATEFUL_BRANCHES
    | PLAIN_CALLS
    | LOOPS
)


def is_eligible(graph: Any, view: GraphView, sight: Sight) -> bool:
    """Whether passes are to work on a function.

    A branch, or what a loop of a replica runs, is left to the function around it, with what these
    call: that redirects their slots in shards, may write a branch out and shard the update in it,
    and knows all that is done. Not so what reduces gradients itself, or does to a slot what its
    value does not allow.

    Args:
        graph: The FuncGraph.
        view: What it holds.
        sight: What the gate saw of it.
    """
    if not sight.trains:
        return _hands_sums_to(view, sight.calls)
    is_left = function_graph.is_branch
    if function_graph.is_of_a_replica():
        is_left = function_graph.is_branch_or_body
    if not sight.in_shards or not function_graph.is_within(graph, is_left):
        return True
    slots = [sharded_slot.sharded_slot_of(handle) for handle, _ in sight.in_shards]
    cut = all(slot is not None and isinstance(slot.layout, Layout | RowLayout) for slot in slots)
    known = {str(number): slot for number, slot in enumerate(slots) if slot is not None}
    if captured_slots.captured_shards(graph, known):
        return True
    uses = {t for _, p in sight.in_shards for t in function_graph.consumer_types(p)}
    return not (cut and uses <= _ON_VALUES and not reduced_values(view))


def _hands_sums_to(view: GraphView, calls: Collection[str]) -> bool:
    """Whether functions that a graph calls write mirrored variables with what it sums itself.

    None of that is sharded, but its author may ask why. A function that sums a metric, say, and
    calls another that averages weights hands no sum to it.
    """
    writers = {name for name in calls if writes_in_call(view, view.ops[name])}

    def following(value: Value) -> Iterator[Value]:
        return (result for op, _ in view.consumers(value) for result in view.results(op.name))

    return bool(writers) and any(
        op.name in writers
        for value in reachable(reduced_values(view), following)
        for op, _ in view.consumers(value)
    )

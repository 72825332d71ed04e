"""Which traced functions concern the pass, asked of every one and so in the cheapest order."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.analysis.accesses import CALLS, STATEFUL_BRANCHES, writes_in_call
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dialects.recognition import SUMS, reduced_values
from tf_wu_shard.graph.capture import capture
from tf_wu_shard.layout import Layout
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.sparse import SPARSE_WRITES
from tf_wu_shard.rules.variables import READ, WRITES
from tf_wu_shard.storage import function_slots, sharded_slot
from tf_wu_shard.tensorflow_private import function_graph, tpu_graph
from tf_wu_shard.tensorflow_private.distributed_variables import (
    distributed_variable_of,
    is_exporting,
)

# The resource handles that a function captured, `(outside, placeholder)` each.
Handles = list[tuple[Any, Any]]

# What yields a value that was there before.
_HELD = frozenset({READ, "Const", "Placeholder"})

# What can be done with the value of a slot just as well.
_ON_VALUES = (
    frozenset({READ, "VarIsInitializedOp"})
    | frozenset(WRITES)
    | frozenset(FUSED)
    | STATEFUL_BRANCHES
)

WRITING = frozenset(WRITES) | frozenset(FUSED) | frozenset(SPARSE_WRITES)


def writes_a_mirrored_variable(graph: Any, handles: Handles) -> bool:
    """Whether a graph holds something to shard at all, asked in the cheapest order."""
    return function_graph.may_write(graph, WRITING | STATEFUL_BRANCHES) and any(
        is_written(placeholder, WRITING | STATEFUL_BRANCHES)
        and (found := distributed_variable_of(handle)) is not None
        and len(found[0].values) > 1
        for handle, placeholder in handles
    )


def hands_sums_to_writers(graph: Any, handles: Handles) -> bool:
    """Whether functions that a graph calls write mirrored variables with what it sums itself.

    None of that is sharded, but its author may ask why. A function that sums a metric, say, and
    calls another that averages weights hands no sum to it.
    """
    called = CALLS - STATEFUL_BRANCHES
    if not function_graph.may_write(graph, called):
        return False
    calls = {
        op.name: op
        for handle, placeholder in handles
        if (found := distributed_variable_of(handle)) is not None and len(found[0].values) > 1
        for op in placeholder.consumers()
        if op.type in called
    }
    # For most graphs the operands decide it, without a capture, which takes long.
    calls = {name: op for name, op in calls.items() if _is_behind(op, SUMS)}
    if not calls:
        return False
    view = capture(graph).view
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


def _is_behind(op: Any, types: frozenset[str]) -> bool:
    """Whether an op of some types computes what another takes."""
    stack, seen = [op], set()
    while stack:
        for before in {tensor.op for tensor in stack.pop().inputs}:
            if before.type in types:
                return True
            if before.name not in seen:
                seen.add(before.name)
                stack.append(before)
    return False


def is_left_to_its_function(graph: Any, in_shards: Handles) -> bool:
    """Whether a graph is a branch, and the function that takes it redirects its slots in shards.

    That function may write the branch out and shard the update in it, and knows all that the branch
    does. A branch that reduces gradients itself, or does to a slot what its value does not allow,
    is not left to it.

    Args:
        graph: The FuncGraph.
        in_shards: Handles of slots that live in shards.
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
        and not reduced_values(capture(graph).view)
    )


def uses_variables_on_tpus(graph: Any, handles: Handles, options: ShardingOptions | None) -> bool:
    """Whether a graph holds a TPU program to be sharded, or uses what is in shards on TPUs."""
    if any(sharded_slot.slot_of_packed(handle) is not None for handle, _ in handles):
        return not is_exporting()
    if function_slots.slots_of_callees(graph):
        return True
    return (
        options is not None
        and function_graph.may_write(graph, WRITING | CALLS)
        and bool(tpu_graph.replicated_variables(graph))
    )


def is_written(placeholder: Any, by: frozenset[str] = WRITING) -> bool:
    """Whether an op of the graph itself, of a type in `by`, takes a captured handle to write it."""
    return any(t in by for t in function_graph.consumer_types(placeholder))


def may_train(graph: Any) -> bool:
    """Whether a function of its own, no branch or body, may write a variable."""
    return function_graph.may_write(graph, WRITING) and not function_graph.is_branch_or_body(graph)


def computes_what_it_writes(placeholder: Any) -> bool:
    """Whether a variable is written with more than arithmetic on what variables hold.

    A copy, an average of weights or a reset trains nothing; behind a weight update there always is
    a layer.

    Args:
        placeholder: The variable's captured handle inside of the function.
    """
    stack, seen = _writes(placeholder), set()
    while stack:
        op = stack.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if op.type not in _HELD and op.type not in WRITES and family_of(op.type) is None:
            return True
        if op.type == READ:
            # A slot, say, is written with the gradient first, and then read.
            stack += _writes(op.inputs[0])
        else:
            stack += [tensor.op for tensor in op.inputs]
    return False


def _writes(placeholder: Any) -> list[Any]:
    return [op for op in placeholder.consumers() if op.type in WRITING]

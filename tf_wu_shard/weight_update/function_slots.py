"""The slots of one traced function: which will live in shards, and which must stay whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tf_wu_shard import captures, refusals
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.nodes import Edges
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import REPLICATED_INPUT
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_fused_update, num_written
from tf_wu_shard.step.accesses import accesses, ignores
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.replicas import workers_of
from tf_wu_shard.storage import captured_slots, copies_apart, pending_slots, shardable
from tf_wu_shard.storage.pending_slots import PendingSlot
from tf_wu_shard.storage.sharded_slot import ShardedSlot, sharded_slot_of
from tf_wu_shard.storage.worker_shards import WriteCounts
from tf_wu_shard.tensorflow_private import (
    creating_traces,
    function_graph,
    resources,
    tpu_graph,
    traced_graphs,
)
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.weight_update.analysis.types import Analysis, UpdatedVariable
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.sharding import Sharding


def planned_slots(
    captured: Captured,
    sharding: Sharding | None,
    known: Mapping[str, ShardedSlot | PendingSlot] | None = None,
) -> dict[str, ShardedSlot | PendingSlot]:
    """The shards of each slot that is cut: those it lives in already, or new ones.

    Args:
        captured: The function's graph and variables.
        sharding: What is to be sharded in it, if anything.
        known: Shards that another graph of the same variables got, by key.

    Returns:
        The shards by slot key; new ones are to be committed once the function uses them.

    Raises:
        WuShardError: If a slot lives in shards of another cut.
    """
    found: dict[str, ShardedSlot | PendingSlot] = {}
    counts = WriteCounts() if workers_of(captured) is not None else None
    held: ShardedSlot | PendingSlot | None
    for slot in sharding.plan.in_shards if sharding is not None else ():
        owner = captured.variables[slot.variable]
        held = (known or {}).get(slot.variable)
        held = held or sharded_slot_of(original_handle(owner.values[0]))
        if held is not None and held.layout != slot.layout:
            raise WuShardError(f"slot {slot.variable} lives in shards cut {held.layout}")
        found[slot.variable] = held or pending_slots.prepare(owner, slot.layout, counts)
    return found


def storage_constraints(
    graph: Any,
    analysis: Analysis,
    captured: Captured,
    planned: Callable[[StorageConstraints], Sharding],
) -> StorageConstraints:
    """What the storage of a function's variables asks of a plan: what lives in shards, what cannot.

    Args:
        graph: The function's FuncGraph.
        analysis: The updates found in it.
        captured: Its graph and variables.
        planned: Plans what else may be sharded.
    """
    held = captured_slots.slots_in_shards(captured)
    found = StorageConstraints(in_shards={key: slot.layout for key, slot in held.items()})
    in_place = _written_in_place(analysis, captured.view)
    # No control edge orders a callee's accesses of the shards against the slot's own.
    passed_on = set(captured_slots.captured_shards(graph, held).values())
    stored: dict[str, list[Any]] = {}

    def stays(updated: UpdatedVariable, refusal: Refusal) -> None:
        handle = original_handle(captured.variables[updated.key].values[0])
        in_shards = sharded_slot_of(handle) is not None
        may = not updated.is_slot and not in_shards and updated.key not in in_place
        nonlocal found
        found = found.keeping(updated.key, refusal, update=not may)

    updated_variables = [v for update in analysis.updates for v in update.variables]
    for updated in updated_variables:
        variable = captured.variables[updated.key]
        apart = copies_apart.why_apart(variable)
        if apart is not None:
            found = found.keeping(updated.key, apart, update=True)
            continue
        packed = tpu_graph.packed_handle(variable)
        on_tpus = packed is not None or tpu_graph.is_on_tpus(variable)
        if not on_tpus and not updated.is_slot and updated.key not in held:
            continue  # its storage stays whole
        refusal = _against_shards(graph, captured.view, variable, packed, updated.handles[0])
        if refusal is None and updated.key in passed_on:
            refusal = refusals.Storage.USED_BY_CALLEE.at()
        handles = [original_handle(c) for c in variable.values]
        if refusal is None and sharded_slot_of(handles[0]) is None:
            stored[updated.key] = handles + ([packed] if packed is not None else [])
        if refusal is not None:
            stays(updated, refusal)
    written_out = [function_graph.inner_graph(graph, name) for name in captured.written_out]

    def is_written_out(f: Any) -> bool:
        return f in written_out and function_graph.is_nested(f)

    # Variables are asked, and functions that may have captured them, only of what is to move; what
    # has to stay may let something else move.
    while moving := stored.keys() & {slot.variable for slot in planned(found).plan.in_shards}:
        own = {key: stored.pop(key) for key in moving}
        # What the function's own branches do is seen where it takes them, and what a function does
        # that was traced for others to call, where they call it.
        functions = captures.captured_by(
            own,
            lambda f: (
                function_graph.is_part_of(f, graph)
                or is_written_out(function_graph.function_of(f))
                or function_graph.never_runs(f, graph)
                or creating_traces.is_over(f)
            ),
            running=traced_graphs.traced_from(graph),
        )
        for updated in (v for v in updated_variables if v.key in own):
            refusal = _against_storage(captured.variables[updated.key])
            has_value = refusal is None or refusal.kind is not refusals.Storage.NO_VALUE
            if updated.key in functions and has_value:
                refusal = refusals.Storage.CAPTURED.at(function=functions[updated.key])
            if refusal is not None:
                stays(updated, refusal)
    return found


def _against_storage(variable: Any) -> Refusal | None:
    """What in the storage of a variable that lives whole speaks against shards."""
    refusal = shardable.against_shards(variable)
    if refusal is None:
        return None
    handles = [original_handle(component) for component in variable.values]
    if not resources.have_values(handles):
        return refusals.Storage.NO_VALUE.at()
    return refusal


def _written_in_place(analysis: Analysis, view: GraphView) -> set[str]:
    """The variables that are written through their handles by more than plain writes.

    A fused op writes so: where the weight stays whole it needs a variable for this step that holds
    the shard, and a TPU program cannot make one. So does a branch that works part by part, on
    weight and slots alike.
    """
    fused = {
        operand.variable
        for update in analysis.updates
        for op in update.body
        if is_fused_update(op.type)
        for operand in op.operands[: num_written(op.type)]
    }
    return fused.union(*(keys for keys in view.part_wise.values()))


def _against_shards(
    graph: Any, view: GraphView, variable: Any, packed: Any | None, handle: str
) -> Refusal | None:
    """What in a function speaks against a variable of a TPU program in shards."""
    if packed is None:
        on_tpus = tpu_graph.is_on_tpus(variable)
        return refusals.Storage.NOT_PACKED.at() if on_tpus else None
    if _is_used_beside(graph, view, packed):
        return refusals.Storage.USED_OUTSIDE.at()
    return cannot_read_shards(view, handle)


def _is_used_beside(graph: Any, view: GraphView, packed: Any) -> bool:
    """Whether the host uses a variable; a loop that trains it takes its shards and ignores it."""
    return any(
        node.op != REPLICATED_INPUT and not ignores(view, node, slot)
        for outside, placeholder in function_graph.captured_handles(graph)
        if outside is packed
        for node, slot in function_graph.consumers(placeholder)
    )


def cannot_read_shards(view: GraphView, handle: str) -> Refusal | None:
    """How a program reads a variable otherwise than as a value that can be gathered first."""
    for access in accesses(view, handle):
        op = access.op
        if not access.access.is_read or op.type == READ:
            continue
        if is_call(op.type):
            return refusals.Storage.HANDED_ON.at(op=op.name, op_type=op.type)
        return refusals.Storage.READ_BY_HANDLE.at(op=op.name, op_type=op.type)
    return None


class _Rewritten(Protocol):
    """What is asked here of a rewritten graph."""

    @property
    def edges(self) -> Sequence[Edges]: ...

    @property
    def outputs(self) -> Sequence[Value]: ...


def unused(graph: Any, final: _Rewritten, before: GraphView, slots: set[str]) -> list[str]:
    """Placeholders of whole slots that nothing in a rewritten graph reads any more.

    The loop of a `tf.while_loop` has as many inputs as its condition, used or not.

    Args:
        graph: The FuncGraph that was rewritten.
        final: What it became.
        before: What it was.
        slots: Keys of the slots that live in shards.
    """
    if function_graph.is_branch_or_body(graph):
        return []
    candidates: set[str] = set()
    for name, ref in before.variables.items():
        if ref.key in slots:
            op = before.ops[name]
            candidates.add(op.inputs[0].op if op.type == REPLICATED_INPUT else name)
    if not candidates:
        return []
    for node in final.edges:
        candidates.difference_update(node.input)
    return sorted(candidates.difference(value.op for value in final.outputs))

"""From what the stages made to a step that works, and the storage that goes with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.grounds.collective.nccl_order import in_one_order
from tf_wu_shard.grounds.collective.write_counts import with_write_counts
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage.pending_slots import PendingSlot
from tf_wu_shard.storage.worker_shards import WriteCounts
from tf_wu_shard.tensorflow_private.compiled_function import make_compiled_function
from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody
from tf_wu_shard.weight_update import function_slots
from tf_wu_shard.weight_update.redirection import AnySlot, redirection
from tf_wu_shard.weight_update.rewrite.border import Redirected
from tf_wu_shard.weight_update.rewrite.compiled_body import CompiledBody
from tf_wu_shard.weight_update.rewrite.outlining import outlined
from tf_wu_shard.weight_update.rewrite.regions import with_calls_left
from tf_wu_shard.weight_update.rewrite.result import ShardInput
from tf_wu_shard.weight_update.rewrite.verify import verify_outlined
from tf_wu_shard.weight_update.stages import Outcome


def handed_over(step: Step, outcome: Outcome, options: ShardingOptions | None) -> Step:
    """Makes the step to swap in.

    Args:
        step: The function; its FuncGraph stays as it is.
        outcome: What the stages made of it.
        options: What the user asked for; None where the flag is off.

    Returns:
        The step, with the slots that are to move into their new storage with it; the same one where
        there is nothing to do.

    Raises:
        StorageError: If the function does something to a variable in shards that cannot be
            expressed on them.
    """
    graph, captured, nested = step.graph, outcome.nested.captured, outcome.nested
    planned = {
        **nested.slots,
        **function_slots.planned_slots(captured, outcome.sharding),
    }
    pending = {k: s for k, s in planned.items() if isinstance(s, PendingSlot)}
    owners: list[Any] = [*step.owners, *(s.shards for s in planned.values())]
    own_inputs = outcome.sharding.shard_inputs if outcome.sharding is not None else ()
    added_inputs = [*nested.inputs, *own_inputs]
    bound = {a.placeholder: _handle(planned[a.slot], a) for a in added_inputs}
    bound |= step.bindings
    outside = redirection(step, outcome, options, planned)
    owners += outside.owners
    new = outside.new
    final = new or outcome.result or (_as_it_is(outcome) if nested.slots else None)
    if final is None:
        return step
    if new is not None:
        owners += [slot.shards for slot in outside.slots.values()]
        bound |= {a.placeholder: _handle(outside.slots[a.slot], a) for a in new.shard_inputs}
    nodes, control_outputs = final.nodes, final.control_outputs
    counts = {
        id(handle): slot.write_counts
        for slot in (*planned.values(), *outside.slots.values())
        if slot.write_counts is not None
        for handle in slot.handles
    }
    counters = {name: counts[id(handle)] for name, handle in bound.items() if id(handle) in counts}
    if counters:
        writes = {n.name: [counters[h] for h in _written(n) if h in counters] for n in nodes}
        writes = {name: found for name, found in writes.items() if found}
        lone = {} if new is None else _counted_reads(new, outside.slots, counters.values())
        counted = with_write_counts(nodes, control_outputs, writes, lone)
        nodes, control_outputs = counted.nodes, counted.control_outputs
        bound |= counted.bindings
        owners.append(tuple(counters.values()))
    regions = outcome.result.regions if outcome.result is not None else ()
    if captured.written_out:
        regions = with_calls_left(regions, nodes)
    made = outlined(nodes, final.outputs, control_outputs, regions)
    if made.bodies:
        verify_outlined(nodes, made)
    outputs = [f"{v.op}:{v.index}" for v in made.outputs]
    return dataclasses.replace(
        step,
        bindings=bound,
        owners=tuple(owners),
        is_changed=True,
        body=NewBody(
            in_one_order(made.nodes),
            outputs,
            made.control_outputs,
            (*outside.functions.values(), *map(_compiled, made.bodies)),
        ),
        dropped=function_slots.unused(graph, final, captured.view, {*outside.slots, *pending}),
        pending=tuple(pending.values()),
        components=outside.components,
    )


def _compiled(body: CompiledBody) -> Any:
    """The function that XLA compiles of a body."""
    outputs = [f"{v.op}:{v.index}" for v in body.outputs]
    return make_compiled_function(body.name, body.nodes, body.arguments, outputs, body.effects)


def _counted_reads(
    new: Redirected, slots: Mapping[str, AnySlot], counters: Iterable[WriteCounts]
) -> dict[str, WriteCounts]:
    """What counts the writes of slots that a graph asks for and writes, by the op that asks."""
    written = {id(counter) for counter in counters}
    asked = {name: slots[key].write_counts for name, key in new.lone_reads.items()}
    return {name: own for name, own in asked.items() if own is not None and id(own) in written}


def _written(node: Any) -> list[str]:
    """The handles of variables that a NodeDef writes."""
    return list(node.input[: num_written(node.op)])


def _as_it_is(outcome: Outcome) -> Redirected:
    view = outcome.view
    return Redirected(tuple(op.node for op in view), (), view.control_outputs, view.outputs)


def _handle(shards: AnySlot, added: ShardInput) -> Any:
    """What to bind to a new input: the handle of one shard, or the packed one of all."""
    return shards.packed_handle if added.is_packed else shards.handles[added.replica]

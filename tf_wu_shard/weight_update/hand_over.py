"""From what the stages made to a step that works, and the storage that goes with it.

What the stages did not touch may still read variables that live in shards; it is redirected to
them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import StorageError
from tf_wu_shard.gate import WRITING
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.collective.nccl_order import in_one_order
from tf_wu_shard.grounds.collective.write_counts import with_write_counts
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.ops import METADATA
from tf_wu_shard.layout import Layout, TileLayout
from tf_wu_shard.program.flatten import program_of
from tf_wu_shard.program.functionalize import functionalized
from tf_wu_shard.program.fused_values import on_scratch
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.rules.handles import num_written
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.replicas import in_process_dialect, tpu_dialect, workers_of
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage import captured_slots, sharded_slot
from tf_wu_shard.tensorflow_private import python_calls, xla_contexts
from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody, make_compiled_function
from tf_wu_shard.weight_update import function_slots
from tf_wu_shard.weight_update.rewrite.compiled_body import CompiledBody
from tf_wu_shard.weight_update.rewrite.lowering import Lowered, lower_slot_accesses
from tf_wu_shard.weight_update.rewrite.outlining import outlined
from tf_wu_shard.weight_update.rewrite.result import ShardInput
from tf_wu_shard.weight_update.rewrite.tpu_accesses import Host
from tf_wu_shard.weight_update.rewrite.tpu_lowering import lower_accesses_on_tpus
from tf_wu_shard.weight_update.rewrite.verify import verify_outlined
from tf_wu_shard.weight_update.slot_reads import read_together, written_keys
from tf_wu_shard.weight_update.stages import Outcome

AnySlot = sharded_slot.ShardedSlot | sharded_slot.PendingSlot


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
    pending = {k: s for k, s in planned.items() if isinstance(s, sharded_slot.PendingSlot)}
    owners: list[Any] = [*step.owners, *(s.shards for s in planned.values())]
    own_inputs = outcome.sharding.shard_inputs if outcome.sharding is not None else ()
    added_inputs = [*nested.inputs, *own_inputs]
    bound = {a.placeholder: _handle(planned[a.slot], a) for a in added_inputs}
    bound |= step.bindings
    slots: dict[str, Any] = dict(captured_slots.slots_in_shards(captured))
    lowered: Lowered | None = None
    functions = captured.functions
    on_host = captured_slots.slots_on_host(graph)
    of_callees = captured_slots.slots_of_callees(graph)
    if on_host.slots or nested.slots or of_callees:
        lowered, slots, functions = _lowered_on_tpus(graph, outcome, on_host, of_callees)
    elif slots:
        layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, Layout)}
        _check_not_compiled(graph, layouts)
        shards = captured_slots.captured_shards(graph, slots)
        captured = dataclasses.replace(captured, view=outcome.view)
        handles = {n: ref for n, ref in outcome.view.variables.items() if ref.key in layouts}
        captured = functionalized(graph, captured, handles, on_scratch)
        traced = outcome.nested.captured.view
        devices = {key: tuple(shard.device for shard in slots[key].shards) for key in layouts}
        dialects = _dialects(step, devices, options)
        written = {*shards.values()} | written_keys(captured.view, handles)
        held = [*planned.values(), *(slots[key] for key in written)]
        reads = _reads_apart(step, {key: slots[key] for key in layouts}, held)
        owners.append(tuple(reads.values()))
        calls = {key: python_calls.token_of(read) for key, read in reads.items()}
        lowered = lower_slot_accesses(captured.view, layouts, shards, traced, dialects, calls)
        functions = captured.functions
    final = lowered or outcome.result or (_as_it_is(outcome) if nested.slots else None)
    if final is None:
        return step
    if lowered is not None:
        owners += [s.shards for s in slots.values()]
        for added in lowered.shard_inputs:
            bound[added.placeholder] = _handle(slots[added.slot], added)
    nodes, control_outputs = final.nodes, final.control_outputs
    counts = {
        id(handle): slot.write_counts
        for slot in (*planned.values(), *slots.values())
        if slot.write_counts is not None
        for handle in slot.handles
    }
    counters = {name: counts[id(handle)] for name, handle in bound.items() if id(handle) in counts}
    if counters:
        writes = {n.name: [counters[h] for h in _written(n) if h in counters] for n in nodes}
        writes = {name: found for name, found in writes.items() if found}
        counted = with_write_counts(nodes, control_outputs, writes)
        nodes, control_outputs = counted.nodes, counted.control_outputs
        bound |= counted.bindings
        owners.append(tuple(counters.values()))
    regions = outcome.result.regions if outcome.result is not None else ()
    exact = outcome.sharding is None or outcome.sharding.plan.compile_update == "exact"
    made = outlined(nodes, final.outputs, control_outputs, regions, exact=exact)
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
            (*functions.values(), *map(_compiled, made.bodies)),
        ),
        dropped=function_slots.unused(graph, final, captured.view, {*slots, *pending}),
        pending=tuple(pending.values()),
    )


def _compiled(body: CompiledBody) -> Any:
    """The function that XLA compiles of a body."""
    outputs = [f"{v.op}:{v.index}" for v in body.outputs]
    return make_compiled_function(body.name, body.nodes, body.arguments, outputs, body.effects)


def _check_not_compiled(graph: Any, slots: Collection[str]) -> None:
    """Raises StorageError where XLA would have to reach other devices to read or write slots."""
    if slots and xla_contexts.is_compiled(graph, WRITING):
        raise StorageError(
            f"XLA compiles {graph.name} as a whole (jit_compile=True), and slot {min(slots)!r},"
            " which it uses, lives in shards on other devices; trace it without jit_compile, or"
            " hand over the slot's value as an argument"
        )


def _dialects(
    step: Step, devices: Mapping[str, tuple[str, ...]], options: ShardingOptions | None
) -> dict[str, Dialect]:
    """How the replicas of each slot in shards exchange data.

    Args:
        step: The function.
        devices: By slot, the devices of the shards that this process has.
        options: What the user asked for; None where the flag is off.
    """
    if workers_of(step.captured) is not None:
        return dict.fromkeys(devices, step.dialect)
    name = options.dialect if options is not None else "auto"
    made = {own: in_process_dialect(in_this_process(own), name) for own in devices.values()}
    return {key: made[own] for key, own in devices.items()}


def _reads_apart(
    step: Step, slots: Mapping[str, Any], written: Iterable[AnySlot]
) -> dict[str, Callable[[], np.ndarray]]:
    """What reads slots that a worker reads alone: all of them where no sum shows a group.

    Args:
        step: The function.
        slots: The slots in shards, by key.
        written: Those that the function writes.

    Returns:
        By slot, what asks the other workers for it; nothing where there are none.
    """
    if workers_of(step.captured) is None:
        return {}
    together = read_together(slots, written) if step.dialect.recognise(step.view)[0] else set()
    return {k: functools.partial(_value, slot) for k, slot in slots.items() if k not in together}


def _value(slot: sharded_slot.ShardedSlot) -> np.ndarray:
    found: np.ndarray = slot.read().numpy()
    return found


def _written(node: Any) -> list[str]:
    """The handles of variables that a NodeDef writes."""
    return list(node.input[: num_written(node.op)])


def _as_it_is(outcome: Outcome) -> Lowered:
    view = outcome.view
    return Lowered(tuple(op.node for op in view), (), view.control_outputs, view.outputs)


def _lowered_on_tpus(
    graph: Any,
    outcome: Outcome,
    on_host: captured_slots.OnHost,
    of_callees: list[sharded_slot.ShardedSlot],
) -> tuple[Lowered | None, dict[str, AnySlot], dict[str, Any]]:
    """A graph whose accesses of variables of a TPUStrategy go to their shards.

    Returns:
        The graph or None where no such variable is touched, the variables in shards by key, and
        the functions that were made for it.
    """
    captured = dataclasses.replace(outcome.nested.captured, view=outcome.view)
    slots, captured, host_keys = _by_one_key(captured, outcome.nested.slots, on_host.slots)
    layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, TileLayout)}
    refs = captured.view.variables
    handles = {name: ref for name, ref in refs.items() if ref.key in layouts}
    handles |= {name: dataclasses.replace(refs[name], key=key) for name, key in host_keys.items()}
    captured = functionalized(graph, captured, handles)
    cluster = captured.cluster

    def dialect_in(program: str) -> TpuCluster:
        assert cluster is not None, "a TPU program without a cluster"
        return tpu_dialect(cluster._replace(name=program), captured)

    passed_on = {slot.variable.name: slot for slot in of_callees}
    passed_on |= {host_keys[name]: slot for name, slot in on_host.slots.items()}
    host = Host(
        host_keys,
        on_host.components,
        captured_slots.captured_shards(graph, passed_on),
        _turns(graph, captured.view),
    )
    writers = outcome.nested.writers
    try:
        lowered = lower_accesses_on_tpus(captured.view, layouts, host, dialect_in, writers)
    except StorageError as error:
        if cluster is None or not cluster.refusal:
            raise
        raise StorageError(f"{cluster.refusal}, so no update is sharded, but {error}") from error
    return lowered, slots, captured.functions


def _by_one_key(
    captured: Captured, nested: Mapping[str, AnySlot], on_host: dict[str, sharded_slot.ShardedSlot]
) -> tuple[dict[str, AnySlot], Captured, dict[str, str]]:
    """Lets a variable that enters several programs, with a key in each, go by one of them.

    Args:
        captured: The graph and variables.
        nested: Variables that branches and loops have in shards, by key.
        on_host: Variables in shards, by the placeholder that the host has of them.

    Returns:
        All of them by key, by each that they have; the graph; and the key of each placeholder.
    """
    one_key = {id(captured.variables[key]): key for key in nested}
    for key, variable in captured.variables.items():
        one_key.setdefault(id(variable), key)
    host_keys = {name: one_key.get(id(slot.variable), name) for name, slot in on_host.items()}
    held = {id(slot.variable): slot for slot in on_host.values()}
    slots = {
        **nested,
        **{key: held[id(v)] for key, v in captured.variables.items() if id(v) in held},
        **{key: on_host[name] for name, key in host_keys.items()},
    }
    refs = {
        name: dataclasses.replace(ref, key=one_key[id(captured.variables[ref.key])])
        if ref.key in captured.variables
        else ref
        for name, ref in captured.view.variables.items()
    }
    return slots, dataclasses.replace(captured, view=captured.view.with_variables(refs)), host_keys


def _turns(graph: Any, view: GraphView) -> Callable[[Op], int]:
    """The place of ops in the trace; that of an op of a TPU program is the program's."""
    traced = {op.name: place for place, op in enumerate(graph.get_operations())}
    programs = {program_of(op.node): traced[op.name] for op in view if op.type == METADATA}
    places: dict[str, int] = {}
    last = 0
    for op in view:
        # What was put in since stands beside what it was made for.
        last = traced.get(op.name, last)
        places[op.name] = last

    def turn(op: Op) -> int:
        return programs.get(program_of(op.node), places[op.name])

    return turn


def _handle(shards: AnySlot, added: ShardInput) -> Any:
    """What to bind to a new input: the handle of one shard, or the packed one of all."""
    return shards.packed_handle if added.is_packed else shards.handles[added.replica]

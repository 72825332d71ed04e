"""What a step does to variables in shards outside of its updates, redirected to the shards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any

import numpy as np

from tf_wu_shard import captures
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import StorageError
from tf_wu_shard.graph.op import Op
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.layout import Layout, TileLayout
from tf_wu_shard.program.functionalize import functionalized
from tf_wu_shard.program.fused_values import on_scratch
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.rules.writes import WRITING
from tf_wu_shard.step.called_graphs import called_graphs
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.step.handed_inputs import own_inputs
from tf_wu_shard.step.own_values import written_with_own_values
from tf_wu_shard.step.replicas import in_process_dialect, tpu_dialect, workers_of
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage import captured_slots, copies_apart
from tf_wu_shard.storage.pending_slots import PendingSlot
from tf_wu_shard.storage.sharded_slot import ShardedSlot
from tf_wu_shard.tensorflow_private import function_graph, python_calls, xla_contexts
from tf_wu_shard.tensorflow_private.variable_paths import path_of
from tf_wu_shard.unique_names import UniqueNames
from tf_wu_shard.weight_update.rewrite.border import Redirected, redirected
from tf_wu_shard.weight_update.rewrite.outside_accesses import InShards
from tf_wu_shard.weight_update.slot_reads import keys_written_in, read_together
from tf_wu_shard.weight_update.stages import Outcome
from tf_wu_shard.weight_update.trace_places import turns_of
from tf_wu_shard.weight_update.two_ways import branches_apart

AnySlot = ShardedSlot | PendingSlot


@dataclasses.dataclass(frozen=True)
class Redirection:
    """What was redirected.

    Attributes:
        slots: The variables in shards, by key.
        functions: What the graph's ops call that was made since the trace, by name.
        new: The graph; None where it touches no such variable.
        owners: What is to be kept as long as the graph.
        components: Whose components it accessed itself, see `captures.note_components`.
    """

    slots: Mapping[str, AnySlot]
    functions: Mapping[str, Any]
    new: Redirected | None = None
    owners: tuple[Any, ...] = ()
    components: Mapping[int, frozenset[int]] = dataclasses.field(default_factory=dict)


def redirection(
    step: Step,
    outcome: Outcome,
    options: ShardingOptions | None,
    planned: Mapping[str, AnySlot],
) -> Redirection:
    """Redirects it.

    Args:
        step: The function.
        outcome: What the stages made of it.
        options: What the user asked for; None where the flag is off.
        planned: The slots that its own updates have in shards, by key.

    Raises:
        StorageError: If the function does something to a variable in shards that cannot be
            expressed on them.
    """
    captured = outcome.nested.captured
    on_host = captured_slots.slots_on_host(step.graph)
    of_callees = captured_slots.slots_of_callees(step.graph)
    if on_host.slots or outcome.nested.slots or of_callees:
        return _on_tpus(step.graph, outcome, on_host, of_callees)
    slots = captured_slots.slots_in_shards(captured)
    if not slots:
        return Redirection({}, captured.functions)
    return _of_copies(step, outcome, options, slots, planned.values())


def _of_copies(
    step: Step,
    outcome: Outcome,
    options: ShardingOptions | None,
    slots: dict[str, ShardedSlot],
    planned: Iterable[AnySlot],
) -> Redirection:
    """Redirects where each replica of this process has a copy of the program of its own."""
    graph = step.graph
    layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, Layout)}
    _check_not_compiled(graph, layouts)
    callees = captured_slots.captured_shards(graph, slots)
    captured = dataclasses.replace(outcome.nested.captured, view=outcome.view)
    handles = {n: ref for n, ref in outcome.view.variables.items() if ref.key in layouts}
    apart = branches_apart(captured.view, callees, handles)
    _check_alike(graph, captured, layouts.keys())
    captured = functionalized(graph, captured, handles, on_scratch, apart)
    devices = {key: tuple(shard.device for shard in slots[key].shards) for key in layouts}
    dialects = _dialects(step, devices, options)
    written = {*callees.values()} | keys_written_in(captured.view, handles)
    held = [*planned, *(slots[key] for key in written)]
    reads = _reads_apart(step, {key: slots[key] for key in layouts}, held)
    if reads and function_graph.is_nested(graph) and not step.dialect.recognise(step.view)[0]:
        raise StorageError(
            f"{function_graph.title(graph)} reads slot {min(reads)!r}, which lives in shards, and"
            " nothing says whether before or after what the function around it does to the slot;"
            " read it there"
        )
    new = redirected(
        captured.view,
        InShards(
            layouts,
            copies={key: len(dialect.replicas.local) for key, dialect in dialects.items()},
            callees=callees,
            turn=turns_of(graph, captured.view, outcome.taken_places),
            accessed=_accessed_by_calls(graph, captured, slots),
        ),
        lambda key, program: dialects[key],
        {key: python_calls.token_of(read) for key, read in reads.items()},
    )
    components: dict[int, frozenset[int]] = {}
    for ref in handles.values():
        shard = _first_shard(slots[ref.key])
        components[shard] = components.get(shard, frozenset()) | {ref.replica}
    return Redirection(slots, captured.functions, new, tuple(reads.values()), components)


def _accessed_by_calls(
    graph: Any, captured: Captured, slots: Mapping[str, ShardedSlot]
) -> Callable[[Op, str], Collection[int]]:
    """Whose copies of a slot, by its key, a call accesses that takes the slot's shards."""
    called = called_graphs(graph, captured)

    def accessed(op: Op, key: str) -> Collection[int]:
        known = captures.components_of(called(op.name), _first_shard(slots[key]))
        return known or range(len(slots[key].shards))

    return accessed


def _first_shard(slot: ShardedSlot) -> int:
    """What a slot goes by in the ledger of who accessed whose components."""
    return id(slot.handles[0])


def _check_not_compiled(graph: Any, slots: Collection[str]) -> None:
    """Raises StorageError where XLA would have to reach other devices to read or write slots."""
    if slots and xla_contexts.is_compiled(graph, WRITING):
        raise StorageError(
            f"XLA compiles {graph.name} as a whole (jit_compile=True), and slot {min(slots)!r},"
            " which it uses, lives in shards on other devices; trace it without jit_compile, or"
            " hand over the slot's value as an argument"
        )


def _check_alike(graph: Any, captured: Captured, slots: Set[str]) -> None:
    """Raises StorageError where replicas write slots in shards, each with a value of its own.

    Each shard would be what its own replica writes: parts of different values.
    """
    # What a loop carries from one round to the next, or a caller hands over, is not known yet.
    own = own_inputs(graph, of_arguments=True)
    apart = copies_apart.known_apart(captured) - slots
    view = copies_apart.with_those_apart(captured.view, apart)
    for key, where in written_with_own_values(view, slots, own).items():
        raise StorageError(
            f"{function_graph.title(graph)} writes slot {key!r}, which lives in shards, with what"
            f" each replica may have of its own ({where}, {view.ops[where].type}), so that copies"
            " would differ;"
            " sum or average it over the replicas, or trace this function before the first step,"
            " which then leaves the slot whole"
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
    step: Step, slots: Mapping[str, ShardedSlot], written: Iterable[AnySlot]
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
    counted = read_together(slots, written)
    together = counted if step.dialect.recognise(step.view)[0] else set()
    return {
        key: functools.partial(_value, slot, is_written=key in counted)
        for key, slot in slots.items()
        if key not in together
    }


def _value(slot: ShardedSlot, *, is_written: bool) -> np.ndarray:
    if is_written:
        slot.keep()
    found: np.ndarray = slot.read().numpy()
    return found


def _on_tpus(
    graph: Any,
    outcome: Outcome,
    on_host: captured_slots.OnHost,
    of_callees: Iterable[ShardedSlot],
) -> Redirection:
    """Redirects where all replicas run one program, on TPUs, and the host beside it."""
    captured = dataclasses.replace(outcome.nested.captured, view=outcome.view)
    outside = [*on_host.slots.values(), *of_callees]
    keys = _one_key_each(captured, outcome.nested.slots, outside)
    host_keys = {name: keys[id(slot.variable)] for name, slot in on_host.slots.items()}
    slots, captured = _by_one_key(captured, outcome.nested.slots, on_host.slots, keys)
    layouts = {key: s.layout for key, s in slots.items() if isinstance(s.layout, TileLayout)}
    refs = captured.view.variables
    handles = {name: ref for name, ref in refs.items() if ref.key in layouts}
    handles |= {name: dataclasses.replace(refs[name], key=key) for name, key in host_keys.items()}
    captured = functionalized(graph, captured, handles)
    _check_alike(graph, captured, {key for key in layouts if key not in host_keys.values()})
    cluster = captured.cluster

    @functools.cache
    def dialect_in(program: str) -> Dialect:
        assert cluster is not None, "a TPU program without a cluster"
        return tpu_dialect(cluster._replace(name=program), captured)

    passed_on = {keys[id(slot.variable)]: slot for slot in outside}
    held = InShards(
        layouts,
        callees=captured_slots.captured_shards(graph, passed_on),
        host=host_keys,
        components=on_host.components,
        writers=outcome.nested.writers,
        turn=turns_of(graph, captured.view, outcome.taken_places),
    )
    try:
        new = redirected(captured.view, held, lambda key, program: dialect_in(program))
    except StorageError as error:
        if cluster is None or not cluster.refusal:
            raise
        raise StorageError(f"{cluster.refusal}, so no update is sharded, but {error}") from error
    return Redirection(slots, captured.functions, new)


def _one_key_each(
    captured: Captured, nested: Iterable[str], outside: Iterable[ShardedSlot]
) -> dict[int, str]:
    """A key for each variable, by its id: one of those that programs have for it, or its path.

    Args:
        captured: The graph and variables.
        nested: Keys of the variables that branches and loops have in shards.
        outside: Variables in shards that the graph has beside its programs.
    """
    found = {id(captured.variables[key]): key for key in nested}
    for key, variable in captured.variables.items():
        found.setdefault(id(variable), key)
    names = UniqueNames(captured.variables)
    for slot in outside:
        if id(slot.variable) not in found:
            found[id(slot.variable)] = names.take(path_of(slot.variable))
    return found


def _by_one_key(
    captured: Captured,
    nested: Mapping[str, AnySlot],
    on_host: Mapping[str, ShardedSlot],
    keys: Mapping[int, str],
) -> tuple[dict[str, AnySlot], Captured]:
    """Lets a variable that enters several programs, with a key in each, go by one of them.

    Args:
        captured: The graph and variables.
        nested: Variables that branches and loops have in shards, by key.
        on_host: Variables in shards, by the placeholder that the host has of them.
        keys: See `_one_key_each`.

    Returns:
        All of them by key, by each that they have; and the graph.
    """
    held = {id(slot.variable): slot for slot in on_host.values()}
    slots = {
        **nested,
        **{key: held[id(v)] for key, v in captured.variables.items() if id(v) in held},
        **{keys[variable]: slot for variable, slot in held.items()},
    }
    refs = {
        name: dataclasses.replace(ref, key=keys[id(captured.variables[ref.key])])
        if ref.key in captured.variables
        else ref
        for name, ref in captured.view.variables.items()
    }
    return slots, dataclasses.replace(captured, view=captured.view.with_variables(refs))

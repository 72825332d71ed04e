"""Weights that a step writes though no gradient reduction was followed to them, and why.

A flag that is on must not be silent about such a weight: the way from its gradient was lost at an
op without a rule, or at a reduction that is left as it is. A write that combines nothing of several
replicas (a target network that follows another one) is no weight update and is not reported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import is_call, run_by
from tf_wu_shard.graph.nodes import data_inputs, source_of, sources_of
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.reachable import reachable
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.registry import Family, family_of, is_of_rows, no_rule
from tf_wu_shard.rules.sparse import BRANCH
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import is_fused_update, is_plain_write, num_written
from tf_wu_shard.step.accesses import accesses, feeds_a_layer
from tf_wu_shard.step.gradients import ResultNames
from tf_wu_shard.step.origins import joins_replicas
from tf_wu_shard.step.variable_values import values_of
from tf_wu_shard.weight_update.analysis.forward_slice import is_broadcast
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, WeightUpdate


def written_unreached(
    view: GraphView,
    names: ResultNames,
    reached: Collection[str],
    devices: Sequence[str],
    left: Iterable[Refusal],
) -> tuple[tuple[RefusedUpdate, ...], frozenset[str]]:
    """Trainable mirrored variables that are written, but that no reduced gradient was followed to.

    Args:
        view: The graph.
        names: Every name of a reduced gradient, as `gradients.result_names` gives them.
        reached: Keys of the variables that reductions were followed to.
        devices: Per copy of the replicas' program in the graph, its device.
        left: Why reductions are left as they are, each by its op.

    Returns:
        Each such variable, in the order of the view, with the reason; and, by key, those that only
        follow weights of layers, and so are not trained.
    """
    refused = {refusal.where: refusal for refusal in left}
    found: dict[str, RefusedUpdate] = {}
    untrained: set[str] = set()
    of_layers = functools.cache(lambda handle: _enters_a_layer(view, handle))
    for handle, ref in view.variables.items():
        if not ref.trainable or ref.num_replicas != len(devices) or ref.replica != 0:
            continue
        if ref.key in reached or ref.shape == ():
            continue
        for write in (access.op for access in values_of(view, handle).writes):
            if ref.key in found:
                continue
            before = _before(view, names, write, ref.key, of_layers)
            reduced = any(value in names or value.op in refused for value in before)
            joined = _of_several(view, before, devices) or _joins_inside(view, write, devices)
            if not reduced and not joined and _follows(view, before, ref.key, of_layers):
                untrained.add(ref.key)
            # In a step that sums gradients, what is written may be one that was lost.
            elif reduced or joined or names or refused:
                keys, refusal = _why_unreached(view, write, before, ref.shape, names, refused)
                if ref.shape is None and refusal.kind is refusals.Updates.NOT_SUMMED:
                    refusal = refusals.Updates.VARIABLE_SHAPE_OPEN.at(write.name)
                found[ref.key] = RefusedUpdate(ref.key, keys, refusal)
    return tuple(found.values()), frozenset(untrained - found.keys())


def _before(
    view: GraphView, names: ResultNames, write: Op, key: str, of_layers: Callable[[str], bool]
) -> dict[Value, None]:
    """All values that a written one depends on, up to reduced gradients.

    Those that variables held before are among them, but not what is written to weights of layers:
    it is reported of these, and who follows them (a teacher, say) is not trained by it.
    """

    def entering(value: Value) -> Iterable[Value]:
        ref = view.variables.get(value.op)
        if value in names or (ref is not None and ref.key != key and of_layers(value.op)):
            return ()
        # What a read yields was written to the variable, perhaps in this step.
        writes = values_of(view, value.op).writes if ref is not None else []
        written = (v for write in writes for v in write.op.inputs)
        return (*view.producer(value).inputs, *written)

    return dict.fromkeys(reachable(write.inputs, entering))


def _enters_a_layer(view: GraphView, handle: str) -> bool:
    """Whether a trainable variable is read, before it is written, by more than arithmetic on it.

    A call that takes it may hold layers, and its update with them. Layers of another precision take
    what it is cast to.
    """
    first = next(iter(accesses(view, handle)), None) if view.variables[handle].trainable else None
    if first is None or is_call(first.op.type) or first.op.type != READ:
        return first is not None and (is_call(first.op.type) or first.access.is_read)
    shape = view.variables[handle].shape

    def takers(value: Value) -> Iterator[Op]:
        return (op for op, _ in view.consumers(value))

    def passed_on(value: Value) -> Iterator[Value]:
        return (Value(op.name) for op in takers(value) if op.type in ("Cast", "Identity"))

    return any(
        family_of(op.type) is None or view.shape(Value(op.name)) != shape
        for value in reachable([Value(first.op.name)], passed_on)
        for op in takers(value)
    )


def _follows(
    view: GraphView, values: Iterable[Value], key: str, of_layers: Callable[[str], bool]
) -> bool:
    """Whether values are made of weights of layers, what their own variable held, and numbers.

    Of another variable, such as one that keeps a sum of gradients, others may know what it holds.
    """

    def may_bring_in(op: Op) -> bool:
        ref = view.variables.get(op.name)
        if ref is not None:
            return not (ref.key == key or ref.shape == () or of_layers(op.name))
        if op.type in (READ, "Const"):
            return False
        return not op.inputs or view.is_stateful(op.type)

    return not any(may_bring_in(view.producer(value)) for value in values)


def _of_several(view: GraphView, values: Iterable[Value], devices: Sequence[str]) -> bool:
    """Whether values are made of what more than one of the replicas has.

    A single number is no gradient: a learning rate is computed once, on any device, for all.
    """
    ops = [view.producer(value) for value in values if view.shape(value) != ()]
    on = {op.device for op in ops}.intersection(devices)
    return len(on) > 1 or any(joins_replicas(op.type) for op in ops)


def _joins_inside(view: GraphView, write: Op, devices: Collection[str]) -> bool:
    """Whether functions that a write calls, if any, write what is made of several replicas'."""
    called = run_by(write.node, view.functions) if is_call(write.type) else ()
    return any(_joins(view.functions[name], devices) for name in called if name in view.functions)


def _joins(function: Any, devices: Collection[str]) -> bool:
    """The same of one function, by its FunctionDef."""
    nodes = {node.name: node for node in function.node_def}

    def behind(name: str) -> list[str]:
        return [source for source in sources_of(nodes[name]) if source in nodes]

    def is_of_several(written: Iterable[str]) -> bool:
        start = nodes.keys() & {source_of(text) for text in written}
        on = {nodes[name].device for name in reachable(start, behind)}
        return len(on.intersection(devices)) > 1

    return any(
        joins_replicas(node.op)
        or (num_written(node.op) and is_of_several(data_inputs(node)[num_written(node.op) :]))
        for node in nodes.values()
    )


def _why_unreached(
    view: GraphView,
    write: Op,
    before: Collection[Value],
    shape: tuple[int, ...] | None,
    names: ResultNames,
    refused: Mapping[str, Refusal],
) -> tuple[tuple[int, ...], Refusal]:
    """The reductions that a write of a variable depends on, and what stopped their following."""
    stopped = next((refused[v.op] for v in before if v.op in refused), None)
    if stopped is not None:
        return (), stopped
    keys = {names[value][0] for value in before if value in names}
    gradients = [v for key in sorted(keys) for v in names.of(key, 0)]
    # An update also goes on from slots that it wrote; they are as large as the weight.
    slots = [
        value
        for value in before
        if (op := view.producer(value)).type == READ
        and (ref := view.variables.get(op.inputs[0].op)) is not None
        and ref.shape == shape
    ]
    sparse = not names.sparse.isdisjoint(keys)
    within = {value.op for value in before}
    # A gradient that comes as far as the call is no longer lost before it.
    enters = is_call(write.type) and any(
        op.name == write.name for _, op, _ in _walk(view, gradients, {*within, write.name}, sparse)
    )
    start = (*gradients, *slots)
    lost = _first_not_followed(view, start, within, sparse) if keys and not enters else None
    if lost is not None:
        return tuple(sorted(keys)), lost
    if is_call(write.type):
        return (), refusals.Updates.INSIDE_OF_CALL.at(write.name, op_type=write.type)
    return (), refusals.Updates.NOT_SUMMED.at(write.name, op_type=write.type)


def _first_not_followed(
    view: GraphView, start: Iterable[Value], within: set[str], sparse: bool
) -> Refusal | None:
    """Why what is computed from values is not followed, at the first op where it is not.

    Args:
        view: The graph.
        start: The values.
        within: Names of the ops to follow it through.
        sparse: Whether sparse gradients are among the values.
    """
    # What has no rule is the cause where something is broadcast besides.
    found: list[tuple[bool, int, Refusal]] = []
    for value, op, slot in _walk(view, start, within, sparse):
        if not _has_rule(op, sparse):
            found.append((False, op.position, no_rule(op.type, op.name)))
        elif not sparse and is_broadcast(view, value, op, slot):
            found.append((True, op.position, _broadcasts(view, value, op)))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _walk(
    view: GraphView, start: Iterable[Value], within: set[str], sparse: bool
) -> Iterator[tuple[Value, Op, int]]:
    """Follows values through ops as a forward slice does.

    Yields:
        A value, an op that takes it, and by which operand.
    """
    stack = list(start)
    seen = set(stack)
    while stack:
        value = stack.pop()
        for op, slot in view.consumers(value):
            if op.name not in within or is_plain_write(op.type) or is_fused_update(op.type):
                continue
            yield value, op, slot
            followed = _has_rule(op, sparse) and family_of(op.type) is not Family.SUM
            if not followed or (not sparse and is_broadcast(view, value, op, slot)):
                continue
            result = op.result_of(slot)
            if result not in seen:
                seen.add(result)
                stack.append(result)


def _has_rule(op: Op, sparse: bool) -> bool:
    of_rows = op.type == BRANCH or is_of_rows(op.type)
    return family_of(op.type) is not None or (sparse and of_rows)


def _broadcasts(view: GraphView, value: Value, op: Op) -> Refusal:
    small, large = view.shape(value) or (), view.shape(Value(op.name)) or ()
    return refusals.Rules.BROADCASTS.at(op.name, shape=small, result=large)


def only_weights(
    view: GraphView,
    refused: Iterable[RefusedUpdate],
    unreached: Sequence[RefusedUpdate],
    updates: Collection[WeightUpdate],
) -> tuple[RefusedUpdate, ...]:
    """Leaves out what is refused beside weights and is none.

    That is slots that were refused only because the way to their weight was not found, and
    variables that feed nothing but arithmetic of their own: the statistics that a synchronized
    batch normalization keeps, whose sums are no gradients.

    Args:
        view: The graph.
        refused: The updates that were followed from their gradients and refused.
        unreached: The weights that no gradient was followed to, as `written_unreached` gives them.
        updates: What can be sharded.

    Returns:
        The refused updates of trainable variables and of those that a layer reads, where their
        gradients explain no weight; all of these where no weight is known at all.
    """
    explained = {key for weight in unreached for key in weight.reductions}
    trainable = {ref.key for ref in view.variables.values() if ref.trainable}
    kept = [r for r in refused if r.variable in trainable or not explained.issuperset(r.reductions)]
    if not (updates or unreached or any(r.variable in trainable for r in kept)):
        return tuple(kept)
    read = {ref.key for h, ref in view.variables.items() if feeds_a_layer(view, h)}
    return tuple(r for r in kept if r.variable in trainable or r.variable in read)

"""What a stand-in batch would be seen in, and how each such place is kept as it was.

Everything that a replica does with a batch ends in sums over replicas, in variables that it writes,
or in what the step returns. A place that cannot be kept as it was is named in an error: a stand-in
that is seen somewhere is training on a batch that is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.calls import callee_names, is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.partial_sums.steps.batch_flow import BatchFlow
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.writes import WRITES, is_plain_write
from tf_wu_shard.step.accesses import accesses, writes_in_call
from tf_wu_shard.step.reductions import GradientReduction

# They check and print, and what they say of a stand-in they said of the batch that it repeats; or
# hand out memory, or look something up.
_HARMLESS = frozenset(
    {"Assert", "Empty", "LookupTableFind", "LookupTableFindV2", "LookupTableSizeV2", "PrintV2"}
)

# A generator's state moves on by an operand: this one.
_DRAWS = {"RngReadAndSkip": 2}

_DRAWING = ("Random", "Rng", "Multinomial", "Uniform", "Normal")
_SEEDS = "draw with a seed of keras.random or from a tf.random.Generator"
_OUTSIDE = "keep it out of branches, loops and functions of the step, or out of the step"


@dataclasses.dataclass(frozen=True)
class Held:
    """An operand of an op by which a variable changes.

    Attributes:
        op: The op.
        slot: The operand's number.
        copy: The copy of the replicas' program that the op is of.
    """

    op: Op
    slot: int
    copy: int


@dataclasses.dataclass(frozen=True)
class Given:
    """What a replica gives away of its batch, other than gradients.

    Attributes:
        value: The value.
        copy: Whose it is.
        op: The op that takes it; None where the step returns it.
        slot: The number of the operand, or of what the step returns.
        reduction: The sum over replicas that it goes into, where there is one.
    """

    value: Value
    copy: int
    op: Op | None
    slot: int
    reduction: GradientReduction | None = None


def check_gradients(
    flow: BatchFlow,
    gradients: Mapping[str, Sequence[GradientReduction]],
) -> None:
    """Raises WuShardError where gradients are none that may be late.

    Args:
        flow: What its values follow from.
        gradients: For each weight, by key, the sums of its gradients.
    """
    of_weights = sum(flow.weights.values())
    for key, found in gradients.items():
        if len({one.gathered for one in found}) < len(found):
            raise WuShardError(
                f"{key} has {len(found)} gradients that are summed in one step: what is late of the"
                " first would be added to another of the same step, or to none"
            )
        for one in found:
            bits = 0
            for operand in one.operands:
                bits |= flow.of(operand)
            if one.depth or bits & of_weights:
                raise WuShardError(
                    f"the gradient of {key} follows from another update of the same step"
                )
            if bits & flow.joined:
                raise WuShardError(
                    f"the gradient of {key} is made of what replicas put together before, such as"
                    " statistics of a batch over all of them or a count that it is divided by"
                )


def check_updates(view: GraphView, flow: BatchFlow) -> None:
    """Raises WuShardError where an update is made of what a replica that is late gives no share of.

    Args:
        view: The step.
        flow: What its values follow from.
    """
    names = {bit: key for key, bit in flow.weights.items()}
    of_weights = sum(names)
    for op in view:
        bits = flow.of_op(op)
        if op.type not in WRITES or not bits & of_weights:
            continue
        written = _key(view, op)
        if bits & flow.joined:
            raise WuShardError(
                f"the update of {written} takes another sum over the replicas beside its gradient,"
                " such as a count that gradients are divided by; a late replica's share of it would"
                " be missing"
            )
        if bits & flow.copies:
            raise WuShardError(
                f"the update of {written} takes what a replica has of its own batch beside the sum"
                " of gradients"
            )
        several = sorted(key for bit, key in names.items() if bits & bit)
        if len(several) > 1:
            raise WuShardError(
                f"the update of {written} takes the gradients of {len(several)} weights, such as"
                f" {several[0]} and {several[1]}: a norm over all of them, or a scale of the loss,"
                " would be of another step than what is late"
            )


def held_writes(view: GraphView, flow: BatchFlow, devices: Sequence[str]) -> list[Held]:
    """The operands by which variables change with a batch, and what counts or was used for it.

    Args:
        view: The step.
        flow: What its values follow from.
        devices: Per copy of the replicas' program, its device.

    Raises:
        WuShardError: Something that a batch leads to changes in a way that cannot be held.
    """
    _check_kernels(view, flow)
    return [*_written(view, flow), *_states(view, flow, devices)]


def given_values(
    view: GraphView, flow: BatchFlow, other_sums: Sequence[GradientReduction]
) -> list[Given]:
    """What replicas give away of their batches beside gradients.

    Args:
        view: The step.
        flow: What its values follow from.
        other_sums: The sums over replicas that are of no weight's gradient.
    """
    found = [Given(value, copy, op, slot) for op, slot, value, copy in flow.leaving()]
    for number, value in enumerate(view.outputs):
        copy = flow.copy_of(flow.of(value))
        if copy is not None:
            found.append(Given(value, copy, None, number))
    for one in other_sums:
        for copy, operand in enumerate(one.operands):
            if flow.of(operand) & flow.copies:
                found.append(Given(operand, copy, None, 0, one))
    return found


def _written(view: GraphView, flow: BatchFlow) -> Iterator[Held]:
    """What is written with what is in a batch."""
    for op in view:
        bits = flow.of_op(op) & (flow.copies | flow.joined)
        slot = None
        if bits and op.name in view.effects:
            slot = _held_slot(view, op)
        if slot is None:
            continue
        copy = flow.copy_of(bits)
        if copy is None:
            raise WuShardError(
                f"{_key(view, op)} is written with what several replicas have of their batches, and"
                " that is no gradient of one weight; keep it on each of them"
            )
        yield Held(op, slot, copy)


def _states(view: GraphView, flow: BatchFlow, devices: Sequence[str]) -> Iterator[Held]:
    """What moves on with every step whatever is in its batch.

    A count of examples is a replica's own, and a generator's state is used for the batch. What all
    replicas share and no batch needs, such as the number of the step, moves on with all of them.
    """
    for handle, ref in view.variables.items():
        if ref.trainable:
            continue
        users = [a.op for a in accesses(view, handle)]
        moves = [op for op in users if _moves(view, op) and not flow.of_op(op)]
        if not moves:
            continue
        copy: int | None
        if ref.mirrored:
            copy = _used_for(view, flow, users)
        else:
            copy = devices.index(ref.device) if len(devices) > 1 else 0
        if copy is None:
            continue
        for op in moves:
            slot = _held_slot(view, op)
            if slot is not None:
                yield Held(op, slot, copy)


def _check_kernels(view: GraphView, flow: BatchFlow) -> None:
    """Raises WuShardError where what is used for a batch keeps its state in no variable."""
    for op in view:
        on_variable = bool(op.inputs) and op.inputs[0].op in view.variables
        if on_variable or op.name in flow.carriers or flow.of_op(op):
            continue
        if op.name in view.effects and _used_for(view, flow, [op]) is not None:
            _held_slot(view, op)


def _moves(view: GraphView, op: Op) -> bool:
    return op.type in WRITES or op.type in _DRAWS or writes_in_call(view, op)


def _used_for(view: GraphView, flow: BatchFlow, users: Sequence[Op]) -> int | None:
    """The copy for whose batch a variable is read, if no update is made of it."""
    results = (value for op in users for value in view.results(op.name))
    start = [value for value in results if not flow.of(value) & flow.copies]
    copies = 0
    for value in reachable(start, lambda value: _following(view, flow, value)):
        for op, _ in view.consumers(value):
            bits = flow.of_op(op)
            if op.type in WRITES and bits and not bits & flow.copies:
                return None
            copies |= bits & flow.copies
    return flow.copy_of(copies)


def _following(view: GraphView, flow: BatchFlow, value: Value) -> Iterator[Value]:
    # What meets the batch counts as found: behind it there is nothing more to learn. What yields
    # the batch itself is not used for it.
    for op, _ in view.consumers(value):
        if not flow.of_op(op) & flow.copies:
            yield from (one for one in view.results(op.name) if not flow.of(one) & flow.copies)


def _held_slot(view: GraphView, op: Op) -> int | None:
    """The operand by which an op changes something; None of what changes nothing."""
    if is_plain_write(op.type):
        return WRITES[op.type].operand
    if op.type in _DRAWS:
        return _DRAWS[op.type]
    if op.type in _HARMLESS:
        return None
    if is_call(op.type):
        effect = _effect_in(view, callee_names(op.node))
        if effect is None and not writes_in_call(view, op):
            return None
        effect = effect or "write"
    else:
        effect = op.type
    draws = any(word in effect for word in _DRAWING)
    raise WuShardError(
        f"{op.name} does with a batch what cannot be held back where that only stands in for"
        f" another: {effect}; {_SEEDS if draws else _OUTSIDE}"
    )


def _effect_in(
    view: GraphView, names: Iterable[str], seen: frozenset[str] = frozenset()
) -> str | None:
    """The type of an op in some functions, and in what they call, which changes something."""
    for name in names:
        if name in seen or name not in view.functions:
            continue
        for inner in view.functions[name].node_def:
            # A function of TensorFlow 1 is called by an op of its name.
            called = callee_names(inner) if is_call(inner.op) else [inner.op]
            if is_call(inner.op) or inner.op in view.functions:
                found = _effect_in(view, called, seen | {name})
                if found is not None:
                    return found
            elif inner.op not in _HARMLESS | {"ReadVariableOp"} and view.is_stateful(inner.op):
                return str(inner.op)
    return None


def _key(view: GraphView, op: Op) -> str:
    """What users call the variable that an op writes."""
    if op.inputs and op.inputs[0].op in view.variables:
        return view.variables[op.inputs[0].op].name
    return op.name

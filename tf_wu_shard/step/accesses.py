"""Which ops touch a variable, and how."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

from tf_wu_shard.graph.calls import callee_names, first_argument, is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.registry import family_of
from tf_wu_shard.rules.variables import READ, WHOLE_READS, Access
from tf_wu_shard.rules.writes import WRITES

# A handle may pass through these unchanged inside a called function.
_FORWARDING = frozenset({"Identity"})


class VariableAccess(NamedTuple):
    """One op that takes a variable's handle."""

    op: Op
    access: Access


def accesses(view: GraphView, handle: str) -> list[VariableAccess]:
    """The live ops that take the handle yielded by `handle`, in the order of the view."""
    found: dict[str, VariableAccess] = {}
    for value_op, slot in view.consumers(Value(handle)):
        access = _access(view, value_op, slot)
        earlier = found.get(value_op.name)
        if earlier is not None and earlier.access != access:
            access = Access.UNKNOWN
        found[value_op.name] = VariableAccess(value_op, access)
    return sorted(found.values(), key=lambda a: a.op.position)


def access_by_callee(view: GraphView, function: str, argument: int) -> Access:
    """What a function, and what it calls, does to the handle that is one of its arguments."""
    known = _accesses_in_function(view, function)
    return known[argument] if argument < len(known) else Access.UNKNOWN


def ignores(view: GraphView, node: Any, slot: int) -> bool:
    """Whether a node hands an operand to functions all of which ignore it.

    Args:
        view: A graph with the functions.
        node: The NodeDef; it need not be of that graph.
        slot: Number of the operand.
    """
    if not is_call(node.op) or slot < first_argument(node.op):
        return False
    argument = slot - first_argument(node.op)
    ignored = (access_by_callee(view, n, argument) is Access.PASSED_ON for n in callee_names(node))
    return all(ignored)


def writes_in_call(view: GraphView, op: Op) -> bool:
    """Whether functions that an op calls may write a variable that it hands them."""
    return is_call(op.type) and any(
        not _access(view, op, slot).is_read
        for slot, value in enumerate(op.inputs)
        if value.op in view.variables
    )


def _access(view: GraphView, op: Op, slot: int) -> Access:
    if op.type == READ:
        return Access.READ
    if op.type in WHOLE_READS:
        return Access.LOOK
    write = WRITES.get(op.type)
    if write is not None and slot < write.num_handles:
        return Access.APPLY if write.is_fused else Access.WRITE
    if is_call(op.type):
        ref = view.variables.get(op.inputs[slot].op)
        if ref is not None and ref.key in view.part_wise.get(op.name, ()):
            return Access.PART_WISE
        return _access_in_call(view, op.node, slot)
    return Access.UNKNOWN


def _access_in_call(view: GraphView, node: Any, slot: int) -> Access:
    """What the functions that a call may run do to the handle it passes as operand `slot`."""
    argument = slot - first_argument(node.op)
    if argument < 0:
        return Access.UNKNOWN
    return _strongest(access_by_callee(view, name, argument) for name in callee_names(node))


# What each function does to each of its arguments, by the view that knows the functions.
_by_function: weakref.WeakKeyDictionary[GraphView, dict[str, tuple[Access, ...]]] = (
    weakref.WeakKeyDictionary()
)


def _accesses_in_function(view: GraphView, function: str) -> tuple[Access, ...]:
    """What a function, and what it calls, does to the handles that are its arguments."""
    known = _by_function.setdefault(view, {})
    if function in known:
        return known[function]
    definition = view.functions.get(function)
    if definition is None:
        return ()
    arguments = definition.signature.input_arg
    # What calls itself may do anything.
    known[function] = (Access.UNKNOWN,) * len(arguments)
    found = [[Access.PASSED_ON] for _ in arguments]
    names = {argument.name: number for number, argument in enumerate(arguments)}
    for node in definition.node_def:
        for slot, text in enumerate(node.input):
            if text not in names:
                continue
            access = Access.UNKNOWN
            if node.op in _FORWARDING:
                names[f"{node.name}:output:0"] = names[text]
                access = Access.PASSED_ON
            elif is_call(node.op):
                access = _access_in_call(view, node, slot)
            elif node.op == READ:
                access = Access.READ
            elif node.op in WHOLE_READS:
                access = Access.LOOK
            found[names[text]].append(access)
    known[function] = tuple(map(_strongest, found))
    return known[function]


def _strongest(found: Iterable[Access]) -> Access:
    """What all of these accesses together amount to; of none it is not known."""
    strongest = Access.UNKNOWN
    for access in found:
        if not access.is_read:
            return Access.UNKNOWN
        weak = strongest in (Access.UNKNOWN, Access.PASSED_ON)
        if weak or (strongest is not Access.LOOK and access is not Access.PASSED_ON):
            strongest = access
    return strongest


def feeds_a_layer(view: GraphView, handle: str) -> bool:
    """Whether a variable is first read by something that is no elementwise arithmetic.

    Args:
        view: The graph.
        handle: The op that yields the variable's handle.
    """
    first = next(iter(accesses(view, handle)), None)
    if first is None or not first.access.is_read:
        return False
    return first.op.type != READ or any(
        family_of(op.type) is None for op, _ in view.consumers(Value(first.op.name))
    )

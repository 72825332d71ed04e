"""Hands loops, branches and functions the values of variables instead of their handles.

What is inside of one that only reads a variable sees its value as it is when the op starts. One
that writes it hands the new value back: a loop in the variable's place among what it carries, the
others as one more result. Reads and writes then stand outside, where the analysis sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard.graph.calls import LOOPS, callees, first_argument, is_call, rename
from tf_wu_shard.graph.nodes import copy_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.fused_values import OnValues, stand_in
from tf_wu_shard.program.value_ops import is_write, on_value
from tf_wu_shard.rules.writes import is_optimizer_step, writes_rows

# Which operands an op only reads; kept by TensorFlow while it traces.
READ_ONLY = "_read_only_resource_inputs"

# The shapes of a node's results, where a graph was written with them.
OUTPUT_SHAPES = "_output_shapes"


class Function(NamedTuple):
    """A function, as it is traced.

    Attributes:
        nodes: Its NodeDefs, arguments being Placeholders, each after its inputs.
        arguments: The Placeholders' names.
        results: What it returns, as a NodeDef names its operands.
    """

    nodes: Sequence[Any]
    arguments: tuple[str, ...]
    results: tuple[str, ...] = ()


class OfValues(NamedTuple):
    """A function in which some arguments are values.

    Attributes:
        nodes: Its NodeDefs, of the same names.
        finals: For each such argument, by position, what its variable is in the end, as a NodeDef
            names its operands.
        results: What it returns, so named; in place of a variable what it is in the end.
    """

    nodes: list[Any]
    finals: dict[int, str]
    results: tuple[str, ...]


class HandleNeededError(Exception):
    """Something is done to a variable that cannot be done to its value."""


# Whether what a node calls may write the variable that is one of its operands, by number.
Writes = Callable[[Any, int], bool]

# From a function's name, the variables whose values it is to take, by position, and the positions
# of those that it is to hand back after its own results, to the name of the function that does.
Specialise = Callable[[str, Mapping[int, VariableRef], tuple[int, ...]], str]


def taking_values(
    node: Any,
    operands: Mapping[int, VariableRef],
    specialise: Specialise,
    written: Sequence[int] = (),
) -> tuple[Any, dict[int, str]]:
    """A loop, branch or call that takes the values of variables.

    Args:
        node: Its NodeDef; never changed.
        operands: By the operand's number, the variables.
        specialise: Makes the functions that do with values.
        written: The operands that may be written.

    Returns:
        The NodeDef, of the same operands, which are to become values; and for each operand in
        `written` the result that is its new value, as a NodeDef names its operands.
    """
    new = copy_of(node)
    # A file stated the shapes of its results; some become others.
    new.attr.pop(OUTPUT_SHAPES, None)
    first = first_argument(node.op)
    arguments = {slot - first: ref for slot, ref in operands.items()}
    loops = node.op in LOOPS
    handed_back = () if loops else tuple(slot - first for slot in written)
    for key, names in callees(node):
        made = [specialise(name, arguments, handed_back) for name in names]
        rename(new.attr[key], made)
    types = new.attr["T" if loops else "Tin"].list.type
    results = types if loops else new.attr["Tout"].list.type
    # Where nothing is written down, nothing is known.
    shapes: Any = new.attr["output_shapes"].list.shape if "output_shapes" in node.attr else ()
    values = {}
    for slot in written:
        values[slot] = str(Value(node.name, slot if loops else len(results)))
        if not loops:
            results.append(operands[slot].dtype)
            if shapes:
                describe(shapes.add(), operands[slot])
    for number, ref in arguments.items():
        types[number] = ref.dtype
        if loops and shapes:
            describe(shapes[number], ref)
    if READ_ONLY in node.attr:
        kept = [slot for slot in node.attr[READ_ONLY].list.i if slot not in operands]
        new.attr[READ_ONLY].list.i[:] = kept
    return new, values


def of_values(
    function: Function,
    arguments: Mapping[int, VariableRef],
    specialise: Specialise,
    writes: Writes,
    *,
    fused: OnValues | None = None,
) -> OfValues:
    """A function's nodes, where some of its arguments are values of variables.

    What it does to each of them one after the other is done to the value; TensorFlow orders all
    accesses of a variable in a traced function, so the order of its nodes is theirs.

    Args:
        function: It, as it takes the variables' handles.
        arguments: By position, the variables.
        specialise: Makes the functions that it calls with them.
        writes: Which of those may write them.
        fused: Does with values what fused updates do.

    Raises:
        HandleNeededError: If it does something to one that a value does not allow.
    """
    handles = {function.arguments[number]: number for number in arguments}
    placeholders = dict(handles)
    finals = {number: function.arguments[number] for number in arguments}
    nodes: list[Any] = []
    for node in function.nodes:
        taken = {slot: handles[text] for slot, text in enumerate(node.input) if text in handles}
        if node.name in placeholders:
            ref = arguments[placeholders[node.name]]
            new = tf.compat.v1.NodeDef(name=node.name, op="Placeholder", device=node.device)
            new.attr["dtype"].type = ref.dtype
            describe(new.attr["shape"].shape, ref)
            nodes.append(new)
        elif not taken:
            nodes.append(node)
        elif is_call(node.op):
            if len(set(taken.values())) < len(taken):
                raise HandleNeededError(node.name)
            refs = {slot: arguments[number] for slot, number in taken.items()}
            written = [slot for slot in taken if writes(node, slot)]
            new, values = taking_values(node, refs, specialise, written)
            for slot, number in taken.items():
                new.input[slot] = finals[number]
                finals[number] = values.get(slot, finals[number])
                if node.op in LOOPS:
                    # A loop's gradient takes handles from its end.
                    handles[str(Value(node.name, slot))] = number
            nodes.append(new)
        elif (done := _with_values(node, taken, finals, arguments, fused)) is not None:
            nodes += done[0]
            finals |= {taken[slot]: value for slot, value in done[1].items()}
        else:
            number = next(iter(taken.values()))
            redirected = on_value(node, finals[number], arguments[number])
            if redirected is None or list(taken) != [0]:
                raise HandleNeededError(node.name)
            nodes += redirected
            if node.op == "Identity":
                handles[node.name] = number
            elif is_write(node.op):
                finals[number] = node.name
    results = (finals[handles[text]] if text in handles else text for text in function.results)
    return OfValues(nodes, finals, tuple(results))


def _with_values(
    node: Any,
    taken: Mapping[int, int],
    finals: Mapping[int, str],
    arguments: Mapping[int, VariableRef],
    fused: OnValues | None,
) -> tuple[list[Any], dict[int, str]] | None:
    """What does with values what an update does that needs handles; None of another op.

    What writes rows does not, but for a while it may stand for itself.
    """
    needed = is_optimizer_step(node.op) or (writes_rows(node.op) and fused is stand_in)
    if fused is None or not needed or len(set(taken.values())) < len(taken):
        return None
    held = {slot: finals[number] for slot, number in taken.items()}
    return fused(node, held, {slot: arguments[number] for slot, number in taken.items()})


def describe(shape: Any, ref: VariableRef) -> None:
    """Writes a variable's shape into a TensorShapeProto."""
    shape.Clear()
    for size in ref.shape or ():
        shape.dim.add().size = size

"""Hands loops, branches and functions the values of variables that they only read.

What is inside of one never writes the variable, so its value there is what it is when the op
starts. The read then stands outside, where the analysis sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard.analysis.accesses import callees, first_argument, is_call
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.rules.variables import READ

# Which operands an op only reads; kept by TensorFlow while it traces.
_READ_ONLY = "_read_only_resource_inputs"


class Function(NamedTuple):
    """A function, as it is traced.

    Attributes:
        nodes: Its NodeDefs, arguments being Placeholders.
        arguments: The Placeholders' names.
    """

    nodes: Sequence[Any]
    arguments: tuple[str, ...]


# From a function's name and, by position, the variables whose values it is to take, to the name of
# the function that does.
Specialise = Callable[[str, Mapping[int, VariableRef]], str]


def taking_values(node: Any, operands: Mapping[int, VariableRef], specialise: Specialise) -> Any:
    """A loop, branch or call that takes the values of variables.

    Args:
        node: Its NodeDef; never changed.
        operands: By the operand's number, the variables.
        specialise: Makes the functions that do with values.

    Returns:
        The NodeDef, of the same operands, which are to become values.
    """
    new = tf.compat.v1.NodeDef()
    new.CopyFrom(node)
    first = first_argument(node.op)
    arguments = {slot - first: ref for slot, ref in operands.items()}
    for key, names in callees(node.op, node.attr):
        made = [specialise(name, arguments) for name in names]
        if node.attr[key].HasField("func"):
            new.attr[key].func.name = made[0]
        else:
            for function, name in zip(new.attr[key].list.func, made, strict=True):
                function.name = name
    types = new.attr["Tin" if "Tin" in node.attr else "T"].list.type
    for number, ref in arguments.items():
        types[number] = ref.dtype
        if "T" in node.attr and new.attr["output_shapes"].list.shape:
            _describe(new.attr["output_shapes"].list.shape[number], ref)
    if _READ_ONLY in node.attr:
        kept = [slot for slot in node.attr[_READ_ONLY].list.i if slot not in operands]
        new.attr[_READ_ONLY].list.i[:] = kept
    return new


def with_values(
    function: Function, arguments: Mapping[int, VariableRef], specialise: Specialise
) -> list[Any]:
    """A function's nodes, where some of its arguments are values of variables.

    Args:
        function: It, as it takes the variables' handles.
        arguments: By position, the variables.
        specialise: Makes the functions that it calls with them.

    Returns:
        NodeDefs of the same names.
    """
    handles = {function.arguments[number]: ref for number, ref in arguments.items()}
    nodes: list[Any] = []
    for node in function.nodes:
        taken = {slot: handles[text] for slot, text in enumerate(node.input) if text in handles}
        if node.name in handles:
            node = _new(node, "Placeholder", handles[node.name], "dtype")
            _describe(node.attr["shape"].shape, handles[node.name])
        elif taken and node.op in (READ, "Identity"):
            if node.op == "Identity":
                handles[node.name] = taken[0]
            node = _new(node, "Identity", taken[0], "T")
        elif taken and is_call(node.op):
            node = taking_values(node, taken, specialise)
        nodes.append(node)
    return nodes


def _new(node: Any, op: str, ref: VariableRef, type_attribute: str) -> Any:
    new = tf.compat.v1.NodeDef(name=node.name, op=op, input=node.input, device=node.device)
    new.attr[type_attribute].type = ref.dtype
    return new


def _describe(shape: Any, ref: VariableRef) -> None:
    shape.Clear()
    for size in ref.shape or ():
        shape.dim.add().size = size

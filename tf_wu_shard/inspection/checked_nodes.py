"""Nodes of a graph or a function out of a file, checked: what comes after may trust their form.

The stages read graphs that TensorFlow made. A file may hold anything, so whatever TensorFlow would
refuse, and would break a stage or make it run out of memory, is an error here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.graph.view import Value
from tf_wu_shard.program.inlining import Body

# More results than any op has.
_MOST_RESULTS = 1 << 16

_SHAPES = "_output_shapes"

OpDefOf = Callable[[str], Any | None]


def count_of(node: Any, argument: Any) -> int:
    """How many tensors an argument or a result of a node stands for.

    Args:
        node: The NodeDef.
        argument: The ArgDef, of its op's definition.

    Raises:
        ModelFileError: The node does not tell, or tells a number that makes no sense.
    """
    if argument.type_list_attr:
        if argument.type_list_attr not in node.attr:
            raise _nonsense(node, f"it has no attribute {argument.type_list_attr!r}")
        return len(node.attr[argument.type_list_attr].list.type)
    if not argument.number_attr:
        return 1
    if argument.number_attr not in node.attr:
        raise _nonsense(node, f"it has no attribute {argument.number_attr!r}")
    count = int(node.attr[argument.number_attr].i)
    if not 0 <= count <= _MOST_RESULTS:
        raise _nonsense(node, f"its {argument.number_attr!r} is {count}")
    return count


def whole_node(node: Any, definition: Any | None) -> Any:
    """A copy of a node with the attributes that were left out as they have their defaults.

    Args:
        node: The NodeDef.
        definition: The OpDef, or None where the op is unknown.
    """
    new = tf.compat.v1.NodeDef()
    new.CopyFrom(node)
    for attribute in definition.attr if definition is not None else ():
        if attribute.name not in new.attr and attribute.HasField("default_value"):
            new.attr[attribute.name].CopyFrom(attribute.default_value)
    return new


def check_node(node: Any, definition: Any | None) -> int | None:
    """Checks that a node has the operands and types that its op needs.

    Args:
        node: The NodeDef.
        definition: The OpDef, or None where the op is unknown.

    Returns:
        How many results it has; None where the op is unknown.

    Raises:
        ModelFileError: It has not.
    """
    if not node.name or not node.op:
        raise ModelFileError("an op has no name or no type")
    operands = sum(not text.startswith("^") for text in node.input)
    if any(not text for text in node.input):
        raise _nonsense(node, "it reads nothing")
    if definition is None:
        return None
    wanted = sum(count_of(node, argument) for argument in definition.input_arg)
    if operands != wanted:
        raise _nonsense(node, f"it has {operands} operands, not {wanted}")
    for argument in (*definition.input_arg, *definition.output_arg):
        if argument.type_attr and argument.type_attr not in node.attr:
            raise _nonsense(node, f"it has no attribute {argument.type_attr!r}")
    return sum(count_of(node, result) for result in definition.output_arg)


def graph_body(nodes: Iterable[Any], op_def: OpDefOf) -> list[Any]:
    """The nodes of a graph, checked and whole.

    Args:
        nodes: Its NodeDefs; they are not changed.
        op_def: The OpDef of an op type.

    Raises:
        ModelFileError: One makes no sense.
    """
    found = [whole_node(node, op_def(node.op)) for node in nodes]
    results = {node.name: check_node(node, op_def(node.op)) for node in found}
    for node in found:
        for text in node.input:
            if not text.startswith("^"):
                _flat_index(node, text, results)
    return found


def _flat_index(node: Any, text: str, results: Mapping[str, int | None]) -> None:
    source, colon, index = text.partition(":")
    if source not in results:
        raise _nonsense(node, f"it reads {source!r}, which is not there")
    if colon and not (index.isascii() and index.isdecimal() and len(index) < 7):
        raise _nonsense(node, f"it reads {text!r}")
    most = results[source]
    if (int(index) if colon else 0) >= (_MOST_RESULTS if most is None else most):
        raise _nonsense(node, f"it reads {text!r}, which is not there")


def function_body(function: Any, op_def: OpDefOf) -> Body:
    """A function as nodes of a graph, its arguments being Placeholders.

    Args:
        function: The FunctionDef; it is not changed.
        op_def: The OpDef of an op type, or the signature of a function that is called by its name.

    Raises:
        ModelFileError: It makes no sense.
    """
    signature = function.signature
    arguments = [_argument(function, number) for number in range(len(signature.input_arg))]
    starts: dict[str, dict[str, int] | None] = {a.name: {} for a in arguments}
    counts: dict[str, int] = dict.fromkeys(starts, 1)
    nodes = list(arguments)
    for node in function.node_def:
        definition = op_def(node.op)
        new = whole_node(node, definition)
        total = check_node(new, definition)
        counts[node.name] = _MOST_RESULTS if total is None else total
        starts[node.name] = _starts(new, definition)
        nodes.append(new)
    for new in nodes[len(arguments) :]:
        for slot, text in enumerate(new.input):
            new.input[slot] = _as_in_graphs(new, text, starts, counts)
    results = []
    for result in signature.output_arg:
        returned = _as_in_graphs(signature, function.ret[result.name], starts, counts)
        name, _, index = returned.partition(":")
        results.append(Value(name, int(index or 0)))
    controls = tuple(dict.fromkeys(function.control_ret.values()))
    if any(name not in starts for name in controls):
        raise _nonsense(signature, "it must run an op that it does not have")
    return Body(nodes, tuple(a.name for a in arguments), tuple(results), controls)


def _argument(function: Any, number: int) -> Any:
    declared = function.signature.input_arg[number]
    if declared.type_attr or declared.number_attr or declared.type_list_attr:
        raise _nonsense(function.signature, "its arguments' types are left open")
    node = tf.compat.v1.NodeDef(name=declared.name, op="Placeholder")
    node.attr["dtype"].type = declared.type
    if number in function.arg_attr:
        known = function.arg_attr[number].attr
        if _SHAPES in known:
            node.attr[_SHAPES].CopyFrom(known[_SHAPES])
    return node


def _starts(node: Any, definition: Any | None) -> dict[str, int] | None:
    """Where each named result of a node begins among all of them; None of an unknown op."""
    if definition is None:
        return None
    found: dict[str, int] = {}
    count = 0
    for result in definition.output_arg:
        found[result.name] = count
        count += count_of(node, result)
    return found


def _as_in_graphs(
    node: Any,
    text: str,
    starts: Mapping[str, dict[str, int] | None],
    counts: Mapping[str, int],
) -> str:
    """An input as graphs have it, "op:index" for "op:result:index"."""
    if text.startswith("^"):
        if text[1:] not in starts:
            raise _nonsense(node, f"it waits for {text[1:]!r}, which is not there")
        return text
    name, _, rest = text.partition(":")
    if name not in starts:
        raise _nonsense(node, f"it reads {name!r}, which is not there")
    result, _, index = rest.partition(":")
    if not rest:
        return name
    known = starts[name]
    if not (index.isascii() and index.isdecimal() and len(index) < 7):
        raise _nonsense(node, f"it reads {text!r}")
    # Results of an unknown op are counted as if the first one were meant.
    begin = 0 if known is None else known.get(result, _MOST_RESULTS)
    if begin + int(index) >= counts[name]:
        raise _nonsense(node, f"it reads {text!r}, which is not there")
    return f"{name}:{begin + int(index)}" if begin + int(index) else name


def _nonsense(node: Any, what: str) -> ModelFileError:
    return ModelFileError(f"{node.name!r} makes no sense: {what}")

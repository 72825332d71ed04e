"""Nodes of a graph or a function out of a file, checked: what comes after may trust their form.

The stages read graphs that TensorFlow made. A file may hold anything, so whatever TensorFlow would
refuse, and would break a stage or make it run out of memory, is an error here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.graph.op import Value, attribute_in
from tf_wu_shard.program.inlining import Body

# More results than any op has.
_MOST_RESULTS = 1 << 16

_SHAPES = "_output_shapes"

# Only small constants decide how a graph is wired: axes, groups of replicas, numbers.
_LARGEST_CONSTANT = 1 << 16

OpDefOf = Callable[[str], Any | None]


class OpForm:
    """What nodes of one op type have to look like; asked once for each type, as there are many.

    Attributes:
        defaults: The attributes that may be left out, with their defaults.
    """

    def __init__(self, definition: Any) -> None:
        """Reads it off a definition.

        Args:
            definition: The OpDef.
        """
        self._inputs = tuple(definition.input_arg)
        self._results = tuple(definition.output_arg)
        everything = (*self._inputs, *self._results)
        self._types = tuple({a.type_attr for a in everything if a.type_attr})
        self._type_lists = tuple({a.type_list_attr for a in everything if a.type_list_attr})
        self._varies = any(a.number_attr or a.type_list_attr for a in everything)
        self._least = {a.name: a.minimum for a in definition.attr if a.type.startswith("list(func")}
        self._starts = {result.name: number for number, result in enumerate(self._results)}
        self.defaults = tuple(
            (attribute.name, attribute.default_value)
            for attribute in definition.attr
            if attribute.HasField("default_value")
        )

    def check(self, node: Any, operands: int) -> int:
        """How many results a node has.

        Args:
            node: The NodeDef, defaults filled in.
            operands: How many operands it has.

        Raises:
            ModelFileError: It has other operands, lacks a type, or names too few functions.
        """
        varies = self._varies
        wanted = sum(_count(node, a) for a in self._inputs) if varies else len(self._inputs)
        if operands != wanted:
            raise _nonsense(node, f"it has {operands} operands, not {wanted}")
        for name in self._types:
            if name not in node.attr:
                raise _nonsense(node, f"it has no attribute {name!r}")
            _check_type(node, name, node.attr[name].type)
        for name in self._type_lists:
            for number in node.attr[name].list.type:
                _check_type(node, name, number)
        for name, least in self._least.items():
            if len(attribute_in(node.attr, name).list.func) < least:
                raise _nonsense(node, f"its {name!r} are less than {least}")
        return sum(_count(node, r) for r in self._results) if varies else len(self._results)

    def starts(self, node: Any) -> Mapping[str, int]:
        """Where each named result of a checked node begins among all of them."""
        if not self._varies:
            return self._starts
        found: dict[str, int] = {}
        count = 0
        for result in self._results:
            found[result.name] = count
            count += _count(node, result)
        return found


def _check_type(node: Any, name: str, number: int) -> None:
    if not is_type(number):
        raise _nonsense(node, f"its {name!r} is {number}, which is no element type")


@functools.lru_cache(maxsize=4096)  # more than TensorFlow has types; a file may hold any number
def is_type(number: int) -> bool:
    """Whether a number is one of TensorFlow's element types."""
    try:
        tf.as_dtype(number)
    except TypeError:
        return False
    return True


def _count(node: Any, argument: Any) -> int:
    """How many tensors an argument or a result of a node stands for."""
    if argument.type_list_attr:
        if argument.type_list_attr not in node.attr:
            raise _nonsense(node, f"it has no attribute {argument.type_list_attr!r}")
        return len(attribute_in(node.attr, argument.type_list_attr).list.type)
    if not argument.number_attr:
        return 1
    if argument.number_attr not in node.attr:
        raise _nonsense(node, f"it has no attribute {argument.number_attr!r}")
    count = int(attribute_in(node.attr, argument.number_attr).i)
    if not 0 <= count <= _MOST_RESULTS:
        raise _nonsense(node, f"its {argument.number_attr!r} is {count}")
    return count


class _Checking:
    """Nodes being checked and made whole.

    Attributes:
        counts: How many results each node has, by its name; of an unknown op, as many as any.
    """

    def __init__(self, op_def: OpDefOf) -> None:
        self._op_def = op_def
        self._forms: dict[str, OpForm | None] = {}
        self.counts: dict[str, int] = {}

    def form(self, op_type: str) -> OpForm | None:
        """What nodes of a type have to look like; None of an unknown one."""
        if op_type not in self._forms:
            definition = self._op_def(op_type)
            self._forms[op_type] = None if definition is None else OpForm(definition)
        return self._forms[op_type]

    def whole(self, node: Any) -> Any:
        """A checked copy of a node, attributes that were left out having their defaults."""
        if not node.name or not node.op:
            raise ModelFileError("an op has no name or no type")
        new = _copied(node)
        form = self.form(node.op)
        operands = 0
        for text in node.input:
            if not text:
                raise _nonsense(node, "it reads nothing")
            operands += text[0] != "^"
        if form is None:
            self.counts[node.name] = _MOST_RESULTS
            return new
        for name, default in form.defaults:
            if name not in new.attr:
                new.attr[name].CopyFrom(default)
        self.counts[node.name] = form.check(new, operands)
        return new


def _copied(node: Any) -> Any:
    """A copy of a node, large constants without what they hold."""
    new = tf.compat.v1.NodeDef()
    if node.ByteSize() <= _LARGEST_CONSTANT or node.op != "Const" or "value" not in node.attr:
        new.CopyFrom(node)
        return new
    new.name, new.op, new.device = node.name, node.op, node.device
    new.input.extend(node.input)
    for name, attribute in node.attr.items():
        if name != "value":
            new.attr[name].CopyFrom(attribute)
    tensor = new.attr["value"].tensor
    tensor.dtype = attribute_in(node.attr, "value").tensor.dtype
    tensor.tensor_shape.CopyFrom(attribute_in(node.attr, "value").tensor.tensor_shape)
    return new


def graph_body(nodes: Iterable[Any], op_def: OpDefOf) -> list[Any]:
    """The nodes of a graph, checked and whole.

    Args:
        nodes: Its NodeDefs; they are not changed.
        op_def: The OpDef of an op type.

    Raises:
        ModelFileError: One makes no sense.
    """
    checking = _Checking(op_def)
    found = [checking.whole(node) for node in nodes]
    for node in found:
        for text in node.input:
            if not text.startswith("^"):
                _check_operand(node, text, checking.counts)
    return found


def _check_operand(node: Any, text: str, counts: Mapping[str, int]) -> None:
    source, colon, index = text.partition(":")
    if source not in counts:
        raise _nonsense(node, f"it reads {source!r}, which is not there")
    if colon and not (index.isascii() and index.isdecimal() and len(index) < 7):
        raise _nonsense(node, f"it reads {text!r}")
    if (int(index) if colon else 0) >= counts[source]:
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
    checking = _Checking(op_def)
    checking.counts.update((a.name, 1) for a in arguments)
    starts: dict[str, Mapping[str, int] | None] = {a.name: {} for a in arguments}
    counts = checking.counts
    nodes = list(arguments)
    for node in function.node_def:
        new = checking.whole(node)
        form = checking.form(node.op)
        starts[node.name] = None if form is None else form.starts(new)
        nodes.append(new)
    for new in nodes[len(arguments) :]:
        inputs = [_as_in_graphs(new, text, starts, counts) for text in new.input]
        del new.input[:]
        new.input.extend(inputs)
    results = []
    for result in signature.output_arg:
        returned = _as_in_graphs(signature, function.ret.get(result.name, ""), starts, counts)
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


def _as_in_graphs(
    node: Any,
    text: str,
    starts: Mapping[str, Mapping[str, int] | None],
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

"""What a graph is made of: ops and the values that they yield."""

from __future__ import annotations

from typing import Any, NamedTuple


def attribute_in(attributes: Any, name: str) -> Any:
    """An attribute, to be read: an empty AttrValue where there is none of that name.

    Reading `attributes[name]` would add it to the graph: a protobuf map of messages inserts what it
    is asked for. A graph that is only read would have another fingerprint after that.

    Args:
        attributes: The `attr` of a NodeDef or FunctionDef.
        name: The attribute's name.
    """
    return attributes[name] if name in attributes else attributes.GetEntryClass()().value


class Value(NamedTuple):
    """One output of one op: a GraphDef's "op:index"."""

    op: str
    index: int = 0  # type: ignore[assignment]  # nobody asks a Value for tuple.index

    def __str__(self) -> str:
        return f"{self.op}:{self.index}" if self.index else self.op


class Op(NamedTuple):
    """One op of the graph.

    Attributes:
        name: Its unique name.
        type: Its op type, such as "AddV2".
        inputs: Its data inputs, in order.
        controls: Names of the ops that must run before it.
        device: The device it is pinned to, or "".
        position: Its place in an order in which every op follows its inputs.
        node: Its NodeDef, for the attributes; never modified.
    """

    name: str
    type: str
    inputs: tuple[Value, ...]
    controls: tuple[str, ...]
    device: str
    position: int
    node: Any

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the ops whose values it takes, as often as it does, then of those it waits for.

        It runs after all of them.
        """
        return (*(value.op for value in self.inputs), *self.controls)

    @property
    def passes_each_on(self) -> bool:
        """Whether each of its results is the operand of that number, as tf.custom_gradient's are.

        What is beside a value in such an op is nothing to it.
        """
        return self.type == "IdentityN"

    def operands_of(self, output: int) -> tuple[Value, ...]:
        """The operands that may be in one of its results."""
        return self.inputs[output : output + 1] if self.passes_each_on else self.inputs

    def result_of(self, operand: int) -> Value:
        """The result that one of its operands is in; of several results the first."""
        return Value(self.name, operand if self.passes_each_on else 0)

    def attribute(self, name: str) -> Any:
        """One of its attributes, to be read; see `attribute_in`."""
        return attribute_in(self.node.attr, name)


def parse_value(text: str) -> Value:
    """Reads a GraphDef's data input, "op" or "op:index"."""
    name, colon, index = text.partition(":")
    return Value(name, int(index) if colon else 0)


def decoded(string: bytes) -> str:
    """A string of a graph, such as a name, as text; bytes that are no UTF-8 stand escaped."""
    return string.decode(errors="backslashreplace")

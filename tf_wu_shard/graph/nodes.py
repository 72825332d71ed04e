"""NodeDefs made of others, which stay as they are.

Reads and copies by duck typing and imports no TensorFlow.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tf_wu_shard.graph.op import Value, parse_value


class Edges(NamedTuple):
    """A NodeDef without its attributes, for who walks over a graph several times.

    To read a protocol buffer takes most of the time of such a walk.
    """

    name: str
    op: str
    input: list[str]


def edges_of(nodes: Iterable[Any]) -> tuple[Edges, ...]:
    """The edges of NodeDefs, in their order."""
    return tuple(Edges(node.name, node.op, [*node.input]) for node in nodes)


def copy_of(node: Any) -> Any:
    """A NodeDef like another one, which may be changed."""
    new = type(node)()
    new.CopyFrom(node)
    return new


def rename_ops(nodes: Iterable[Any], names: Mapping[str, str]) -> None:
    """Gives ops other names, wherever NodeDefs, which are changed, name them.

    Args:
        nodes: All NodeDefs of a graph; those that name none of the ops stay as they are.
        names: For each op, its new name.
    """

    @functools.cache  # Most are named several times.
    def renamed(text: str) -> str:
        name = source_of(text)
        return text.replace(name, names[name], 1) if name in names else text

    for node in nodes:
        if node.name in names:
            node.name = names[node.name]
        before = [*node.input]
        after = [*map(renamed, before)]
        if after != before:
            node.input[:] = after


def source_of(text: str) -> str:
    """The name of the op that a NodeDef takes something of, or waits for, as it names it."""
    return text.partition(":")[0].removeprefix("^")


def sources_of(node: Any) -> list[str]:
    """Names of the ops that a NodeDef takes something of or waits for."""
    return [source_of(text) for text in node.input]


def data_inputs(node: Any) -> list[str]:
    """What a NodeDef computes with, as it names it."""
    return [text for text in node.input if not text.startswith("^")]


def control_inputs(node: Any) -> list[str]:
    """What a NodeDef waits for, as it names it: "^" and the name of an op."""
    return [text for text in node.input if text.startswith("^")]


def without_controls(node: Any) -> Any:
    """A NodeDef that waits for nothing; the same one if it does not."""
    return rewired(node, data_inputs(node))


def rewired(node: Any, inputs: Sequence[str]) -> Any:
    """A NodeDef with other inputs; the same one if it has these.

    Args:
        node: The NodeDef.
        inputs: Its inputs, as NodeDefs name them; control inputs may stand anywhere and twice.
    """
    if list(inputs) == list(node.input):
        return node
    new = copy_of(node)
    del new.input[:]
    new.input.extend(text for text in inputs if not text.startswith("^"))
    new.input.extend(dict.fromkeys(text for text in inputs if text.startswith("^")))
    return new


def with_inputs(node: Any, instead: Mapping[str, str]) -> Any:
    """A NodeDef that takes other results, as NodeDefs name them; the same one if it takes none."""
    if instead.keys().isdisjoint(node.input):
        return node
    return rewired(node, [instead.get(text, text) for text in node.input])


def with_values(node: Any, instead: Mapping[Value, Value]) -> Any:
    """A NodeDef that takes other values in the place of some; the same one if it takes none."""
    return rewired(node, inputs_now(node.input, instead, {}))


def inputs_now(
    inputs: Iterable[str], values: Mapping[Value, Value], ops: Mapping[str, str]
) -> list[str]:
    """Inputs as NodeDefs name them, where some values and ops have others in their places.

    Args:
        inputs: What a NodeDef takes and waits for.
        values: What is to be taken in the place of values.
        ops: What is to be waited for in the place of ops, by name.
    """
    found = []
    for text in inputs:
        if text.startswith("^"):
            found.append(f"^{ops.get(text[1:], text[1:])}")
        else:
            value = values.get(parse_value(text))
            found.append(text if value is None else str(value))
    return found


def with_operands(node: Any, operands: Mapping[int, Value]) -> Any:
    """A NodeDef that takes other values as some operands, by number; the same one if none."""
    if not operands:
        return node
    new = copy_of(node)
    for slot, value in operands.items():
        new.input[slot] = str(value)
    return new


def waiting(node: Any, names: Iterable[str]) -> Any:
    """A NodeDef that also waits for the ops of some names; the same one if there are none."""
    more = [f"^{name}" for name in names]
    return rewired(node, [*node.input, *more]) if more else node

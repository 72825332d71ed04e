"""Writes called functions out at the place of their calls: nodes in, nodes out.

A function's ops then stand among those of its caller, and what an op does to a variable can be seen
without looking into functions. The order of effects stays: what waited for the call waits for all
that the function must run, and nothing of the function runs before what the call waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_wu_shard.colocation import rename_wishes
from tf_wu_shard.dtypes import RESOURCE
from tf_wu_shard.graph.nodes import (
    control_inputs,
    copy_of,
    data_inputs,
    rewired,
    source_of,
    sources_of,
)
from tf_wu_shard.graph.op import Value, attribute_in, parse_value
from tf_wu_shard.program.compiled_calls import mark_as_its_caller
from tf_wu_shard.unique_names import UniqueNames


class Body(NamedTuple):
    """A function.

    Attributes:
        nodes: Its NodeDefs, arguments being Placeholders.
        arguments: The Placeholders' names.
        results: What it returns.
        control_outputs: Names of the ops that must run.
    """

    nodes: Sequence[Any]
    arguments: tuple[str, ...]
    results: tuple[Value, ...]
    control_outputs: tuple[str, ...]


class Inlined(NamedTuple):
    """Nodes in which calls were written out.

    Attributes:
        nodes: The nodes; some are the old ones: not to be changed.
        values: What stands for the results of the calls that are gone.
        ends: For each call that is gone, the op to wait for in its place.
        origins: For each new node that was a function's, by name, the call and the name there.
    """

    nodes: tuple[Any, ...]
    values: dict[Value, Value]
    ends: dict[str, str]
    origins: dict[str, tuple[str, str]]

    def value(self, value: Value) -> Value:
        """What a value of the old nodes is now."""
        while value in self.values:
            value = self.values[value]
        return value


def inline(
    nodes: Iterable[Any],
    calls: Mapping[str, Body],
    adopt: Callable[[Any], None],
    taken: Iterable[str] = (),
) -> Inlined:
    """Writes out calls.

    Args:
        nodes: NodeDefs; never changed.
        calls: For each call to write out, by its op's name, the function.
        adopt: Makes a new NodeDef part of the program that the calls are in. What was in a call
            that XLA compiles is marked.
        taken: Names that no new node may have, beside those of the nodes.

    Returns:
        The nodes with the functions' in place of the calls, on the calls' devices where they name
        none.
    """
    nodes = list(nodes)
    names = UniqueNames((*(node.name for node in nodes), *taken))
    return _Inlining(names, calls, adopt).run(nodes)


class _Inlining:
    def __init__(
        self,
        names: UniqueNames,
        calls: Mapping[str, Body],
        adopt: Callable[[Any], None],
    ) -> None:
        self._names = names
        self._calls = calls
        self._adopt = adopt
        self._values: dict[Value, Value] = {}
        self._ends: dict[str, str] = {}
        self._origins: dict[str, tuple[str, str]] = {}

    def run(self, nodes: list[Any]) -> Inlined:
        """Does it."""
        written: list[Any] = []
        for node in nodes:
            if node.name in self._calls:
                written += self._body(node, self._calls[node.name])
        kept = [node for node in nodes if node.name not in self._calls]
        found = Inlined((), self._values, self._ends, self._origins)
        return found._replace(
            nodes=tuple(self._redirected(node, found) for node in (*kept, *written))
        )

    def _body(self, call: Any, body: Body) -> list[Any]:
        """A function's nodes, as they stand in place of a call."""
        inputs = data_inputs(call)
        operands = dict(zip(body.arguments, map(parse_value, inputs), strict=True))
        start = self._no_op(call, "start", control_inputs(call))
        handles = {
            node.name
            for node in body.nodes
            if node.name in operands and attribute_in(node.attr, "dtype").type == RESOURCE
        }
        names = {
            node.name: self._names.take(f"{call.name}/{node.name}")
            for node in body.nodes
            if node.name not in operands
        }
        written = [start]
        for node in body.nodes:
            if node.name in operands:
                continue
            new = copy_of(node)
            new.name = names[node.name]
            new.device = new.device or call.device
            mark_as_its_caller(new, call)
            rename_wishes(new, names.get)
            del new.input[:]
            for text in node.input:
                new.input.append(_moved(text, names, operands))
            # What takes a handle waits itself: it may be a call that is written out in turn, where
            # nothing waits for what the call computes with.
            sources = set(sources_of(node))
            if names.keys().isdisjoint(sources) or not handles.isdisjoint(sources):
                new.input.append(f"^{start.name}")
            self._adopt(new)
            self._origins[new.name] = (call.name, node.name)
            written.append(new)
        results = [parse_value(_moved(str(v), names, operands)) for v in body.results]
        for index, result in enumerate(results):
            self._values[Value(call.name, index)] = result
        waits = [f"^{names[name]}" for name in body.control_outputs if name in names]
        waits += [f"^{result.op}" for result in results]
        done = self._no_op(call, "done", [f"^{start.name}", *dict.fromkeys(waits)])
        self._ends[call.name] = done.name
        return [*written, done]

    def _no_op(self, call: Any, name: str, controls: Sequence[str]) -> Any:
        name = self._names.take(f"{call.name}/{name}")
        node = tf.compat.v1.NodeDef(name=name, op="NoOp", device=call.device)
        node.input.extend(controls)
        self._adopt(node)
        return node

    def _redirected(self, node: Any, found: Inlined) -> Any:
        """A node that takes what stands in place of calls."""
        redirected = [self._redirected_text(text, found) for text in node.input]
        return rewired(node, redirected)

    def _redirected_text(self, text: str, found: Inlined) -> str:
        if text.startswith("^"):
            name = text[1:]
            return f"^{self._ends.get(name, name)}"
        value = parse_value(text)
        if value.op not in self._ends:
            return text
        return str(found.value(value))


def _moved(text: str, names: Mapping[str, str], operands: Mapping[str, Value]) -> str:
    """An input of a function's node, where the function's arguments are a call's operands."""
    source = source_of(text)
    if source in operands:
        operand = operands[source]
        return f"^{operand.op}" if text.startswith("^") else str(operand)
    return text.replace(source, names[source], 1)

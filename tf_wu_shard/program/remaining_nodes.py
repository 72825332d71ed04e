"""The NodeDefs of a function, out of which branch ops are taken one after the other.

Each step changes what is next to one op alone: a model may have a branch in every layer, so that a
step that walked over all nodes would make the whole quadratic.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.nodes import data_inputs, sources_of, waiting, with_values
from tf_wu_shard.graph.op import Op, Value, parse_value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import PROGRAM
from tf_wu_shard.reachable import reachable


class Following:
    """What comes after the ops of a graph."""

    def __init__(self, view: GraphView) -> None:
        """Indexes the graph.

        Args:
            view: It.
        """
        self._view = view
        self._takers: dict[str, list[Op]] = collections.defaultdict(list)
        for op in view:
            for name in {*op.sources}:
                self._takers[name].append(op)

    @functools.cached_property
    def _leading(self) -> set[str]:
        """The effects that are no accesses of variables, and what leads to such by way of none."""
        view, found = self._view, set[str]()
        for op in reversed([*view]):
            accesses = any(value.op in view.variables for value in op.inputs)
            leads = op.name in view.effects or any(t.name in found for t in self.takers(op.name))
            if leads and (is_call(op.type) or not accesses):
                found.add(op.name)
        return found

    @functools.cached_property
    def unread(self) -> frozenset[str]:
        """The ops of which nothing but their end matters: no output and no effect takes a result.

        A `tf.group` waits so for values that a function returns.
        """
        needed = {value.op for value in self._view.outputs}
        for op in reversed([*self._view]):
            if op.name in needed or op.name in self._view.effects:
                needed.add(op.name)
                needed.update(value.op for value in op.inputs)
        return frozenset(self._view.ops.keys() - needed)

    def takers(self, name: str) -> list[Op]:
        """The ops that take a result of an op, or wait for it, in their order."""
        return self._takers.get(name, [])

    def idle(self, op: str) -> set[str]:
        """The ops behind one that nobody needs: what a branch returns is always given a name."""
        live = self._view.live

        def behind(name: str) -> Iterator[str]:
            return (taker.name for taker in self.takers(name) if taker.name not in live)

        return {*reachable([op], behind)} - {op}

    def effects(self, op: str) -> set[str]:
        """The effects that come after an op as what it returns does.

        An access of a variable waits for the writes of that variable itself.
        """
        view, leading = self._view, self._leading

        def behind(name: str) -> Iterator[str]:
            return (taker.name for taker in self.takers(name) if taker.name in leading)

        return {name for name in reachable([op], behind) if name in view.effects} - {op}


class RemainingNodes:
    """What is left of a function, and what stands in the place of what was taken out.

    Attributes:
        by_name: The NodeDefs, never changed but replaced; what was added comes last.
        outputs: What the function returns.
    """

    def __init__(self, view: GraphView, following: Following) -> None:
        """Begins with all nodes.

        Args:
            view: The function.
            following: What comes after its ops.
        """
        self._following = following
        self.by_name: dict[str, Any] = {op.name: op.node for op in view}
        self.outputs = view.outputs

    def taken_of(self, op: Op) -> list[Value]:
        """The results of a branch op that something needs or returns."""
        unread = self._following.unread
        takers = (self.by_name[name] for name in self._takers(op) if name not in unread)
        taken = (parse_value(text) for taker in takers for text in data_inputs(taker))
        return [value for value in (*taken, *self.outputs) if value.op == op.name]

    def replace(
        self, op: Op, nodes: Iterable[Any], values: Mapping[Value, Value], *, effects_wait: bool
    ) -> None:
        """Puts others in the place of a branch op.

        Args:
            op: The op; what nobody needs that comes after it goes, too.
            nodes: What takes its place, an op of its name among it.
            values: What is to be taken in the place of those of its results that are needed.
            effects_wait: Whether effects that come after what it returns wait for the op of its
                name.
        """
        for name in (op.name, *self._following.idle(op.name)):
            self.by_name.pop(name, None)
        for name in self._following.effects(op.name) if effects_wait else ():
            self.by_name[name] = waiting(self.by_name[name], [op.name])
        for name in self._takers(op):
            self.by_name[name] = with_values(self.by_name[name], values)
        for name in self._behind_unread(op):
            self.by_name[name] = only_waiting(self.by_name[name], sources_of(self.by_name[name]))
        self.outputs = tuple(values.get(value, value) for value in self.outputs)
        self.by_name |= {node.name: node for node in nodes}

    def _behind_unread(self, op: Op) -> list[str]:
        """The names of what takes results of a branch op, by way of others, and is unread."""

        def behind(name: str) -> Iterator[str]:
            for taker in self._following.takers(name):
                takes = any(value.op == name for value in taker.inputs)
                if takes and taker.name in self._following.unread and taker.name in self.by_name:
                    yield taker.name

        return [name for name in reachable([op.name], behind) if name != op.name]

    def _takers(self, op: Op) -> list[str]:
        found = (taker.name for taker in self._following.takers(op.name))
        return [name for name in found if name in self.by_name]


def only_waiting(node: Any, names: Iterable[str]) -> Any:
    """A node of the same name that yields nothing, and waits for some ops.

    Args:
        node: The NodeDef; never changed.
        names: The ops' names, with "^" in front or without.
    """
    new = type(node)(name=node.name, op="NoOp", device=node.device)
    new.input.extend(dict.fromkeys(f"^{name.removeprefix('^')}" for name in names))
    if PROGRAM in node.attr:
        new.attr[PROGRAM].CopyFrom(node.attr[PROGRAM])
    return new

"""Branches, loops and calls that are handed a variable by several operands, and take it by one.

As `tf.saved_model.save` traces functions anew, without the replicas' components, what reads a
variable in a branch of a TPU program has its handle by another operand than what writes it. Both
are one variable, its accesses in the order in which they were traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.calls import callees, first_argument, is_call, rename
from tf_wu_shard.graph.nodes import copy_of, rewired, with_inputs
from tf_wu_shard.program.called_graph import CalledGraph
from tf_wu_shard.step.capture import Captured


def by_one_operand(graph: CalledGraph, captured: Captured) -> Captured:
    """The same graph, in which functions use the first of several such operands.

    Args:
        graph: The function.
        captured: Its graph and variables; calls of functions come to an end.
    """
    view = captured.view
    handles = {name: ref.key for name, ref in view.variables.items()}
    work = _Merging(captured.functions)
    nodes = work.all_merged(graph, (op.node for op in view), handles)
    if work.made.keys() == captured.functions.keys():
        return captured
    return captured.with_nodes(nodes, work.made)


class _Merging:
    """Makes such functions.

    Attributes:
        made: All functions made since the trace, by name.
    """

    def __init__(self, made: Mapping[str, Any]) -> None:
        self.made = dict(made)
        self._known: dict[Any, str] = {}

    def all_merged(
        self, graph: CalledGraph, nodes: Iterable[Any], handles: Mapping[str, str]
    ) -> list[Any]:
        """Nodes whose functions use the first of several operands that are one variable.

        Args:
            graph: Whose nodes they are.
            nodes: NodeDefs; never changed.
            handles: What variable is behind a name, for those that are handles.
        """
        found: list[Any] = []
        for node in nodes:
            found += self._merged(graph, node, handles) if is_call(node.op) else [node]
        return found

    def _merged(self, graph: CalledGraph, node: Any, handles: Mapping[str, str]) -> list[Any]:
        """A node that calls functions, and what stands for operands that they no longer use."""
        first: dict[str, int] = {}
        instead: dict[int, int] = {}
        for slot, text in enumerate(node.input):
            if text in handles:
                argument = slot - first_argument(node.op)
                if first.setdefault(handles[text], argument) != argument:
                    instead[argument] = first[handles[text]]
        if not instead:
            return [node]
        new = copy_of(node)
        for key, names in callees(node):
            made = [self._function(graph, name, instead) for name in names]
            rename(new.attr[key], made)
        unused = tf.compat.v1.NodeDef(name=f"{node.name}/unused", op="Placeholder")
        unused.attr["dtype"].type = tf.resource.as_datatype_enum
        for argument in instead:
            new.input[argument + first_argument(node.op)] = unused.name
        return [unused, new]

    def _function(self, graph: CalledGraph, name: str, instead: Mapping[int, int]) -> str:
        """The name of a function that uses other arguments in place of some, by their numbers."""
        wanted = (name, tuple(instead.items()))
        called = graph.inner(name, self.made)
        if wanted in self._known or called is None:
            return self._known.get(wanted, name)
        body = called.body()
        names = body.arguments
        if max(instead) >= len(names):
            return name
        others = {names[number]: names[other] for number, other in instead.items()}
        handles = {argument: argument for argument in others.values()}
        own = in_traced_order((with_inputs(node, others) for node in body.nodes), handles)
        nodes = self.all_merged(called, own, handles)
        new = called.remade(body._replace(nodes=nodes), self.made.values())
        self._known[wanted] = new.name.decode()
        self.made[new.name.decode()] = new
        return self._known[wanted]


def in_traced_order(nodes: Iterable[Any], handles: Mapping[str, str]) -> list[Any]:
    """Nodes of which those that access a variable each wait for the one before.

    Args:
        nodes: NodeDefs in the order in which they were traced; never changed.
        handles: For names of handles the variables' keys; others keep the order that they have.
    """
    last: dict[str, str] = {}
    ordered = []
    for node in nodes:
        touched = {handles[text] for text in node.input if text in handles}
        waits = [f"^{last[key]}" for key in touched if key in last]
        new = node
        if waits:
            new = rewired(node, [*node.input, *waits])
        last.update(dict.fromkeys(touched, node.name))
        ordered.append(new)
    return ordered

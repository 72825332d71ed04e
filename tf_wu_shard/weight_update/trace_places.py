"""When ops came in the trace, those of functions that were written out since among them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tf_wu_shard.graph.calls import PLAIN_CALLS, is_call
from tf_wu_shard.graph.op import Op
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.ops import METADATA, program_of
from tf_wu_shard.tensorflow_private import function_graph
from tf_wu_shard.tensorflow_private.node_import import scopes
from tf_wu_shard.weight_update.rewrite.names import SCOPE, in_place_of


def turns_of(
    graph: Any, view: GraphView, taken_places: Mapping[str, Collection[str]]
) -> Callable[[Op], tuple[int, ...]]:
    """The place of ops in the trace; that of an op of a TPU program is the program's.

    Args:
        graph: The FuncGraph.
        view: What was made of it.
        taken_places: For each op that took the place of old ones, by name, the names of these.
    """
    traced = _Places(graph)
    programs = {program_of(op.node): traced.of(op.name) or () for op in view if op.type == METADATA}
    places: dict[str, tuple[int, ...]] = {}
    last: tuple[int, ...] = ()
    for op in view:
        found = [traced.of(name) for name in (op.name, *taken_places.get(op.name, ()))]
        # What else was put in since stands beside what it was made for.
        last = max(filter(None, found), default=last)
        places[op.name] = last

    def turn(op: Op) -> tuple[int, ...]:
        return programs.get(program_of(op.node), places[op.name])

    return turn


class _Places:
    """The places of the ops of a FuncGraph."""

    def __init__(self, graph: Any) -> None:
        """Looks at the graph.

        Args:
            graph: The FuncGraph.
        """
        self._graph = graph
        # What calls run, by the name of the call; None where nothing is known of it.
        self._called: dict[str, _Places | None] = {}
        self._ops = {op.name: (place, op) for place, op in enumerate(graph.get_operations())}

    def of(self, name: str) -> tuple[int, ...] | None:
        """The place of an op, or of what it was written out of.

        Args:
            name: The op's name; what was written out of a call, or computes a shard of what an op
                did, has the call's or the op's name as a scope.

        Returns:
            Its number in the graph; then, where it was written out of a call, that in the graph of
            the function, and so on. None where nothing is known of it.
        """
        if name in self._ops:
            return (self._ops[name][0],)
        for scope in scopes(name):
            place, op = self._ops.get(scope, (0, None))
            if op is None:
                continue
            if name.startswith(f"{in_place_of(scope, SCOPE)}/"):
                return (place,)
            if is_call(op.type):
                inner = self._inside(scope) if op.type in PLAIN_CALLS else None
                rest = inner.of(name[len(scope) + 1 :]) if inner is not None else None
                return (place, *(rest or ()))
        return None

    def _inside(self, call: str) -> _Places | None:
        """The places in the function that a call runs."""
        if call not in self._called:
            function = self._ops[call][1].get_attr("f").name
            graph = function_graph.inner_graph(self._graph, function)
            self._called[call] = None if graph is None else _Places(graph)
        return self._called[call]

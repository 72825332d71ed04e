"""Which inputs of a traced function are a replica's own, as far as the functions around it show."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step import origins
from tf_wu_shard.step.capture import capture
from tf_wu_shard.tensorflow_private import function_graph


def own_inputs(graph: Any, *, of_arguments: bool) -> Callable[[str], bool]:
    """Tells which inputs may be a replica's own, where not all replicas have the same one.

    What a branch, a loop or a called function captured is looked up in the function that has it,
    which is still being traced.

    Args:
        graph: The FuncGraph.
        of_arguments: Whether what it did not capture is a replica's own; False where that is for
            those to say who hand it over.

    Returns:
        What tells it of an input, by its name.
    """
    if not function_graph.is_nested(graph):
        return lambda name: of_arguments
    captured = function_graph.captured_values(graph)

    @functools.cache
    def seen(outer: Any) -> tuple[GraphView, Callable[[str], bool]]:
        return capture(outer).view, own_inputs(outer, of_arguments=of_arguments)

    def is_own(name: str) -> bool:
        if name not in captured:
            return of_arguments
        outer, op, index = captured[name]
        view, own_outside = seen(outer)
        behind = origins.behind(view, [Value(op, index)])
        sources = (source for value in behind for source in origins.own_in(view, value))
        return any(
            not origins.is_input(view, source) or own_outside(source[0])
            for source in sources
            if isinstance(source, tuple)
        )

    return is_own

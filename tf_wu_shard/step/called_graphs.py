"""The FuncGraphs of the functions that ops of a captured function run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tf_wu_shard.graph.calls import run_by
from tf_wu_shard.step.capture import Captured
from tf_wu_shard.tensorflow_private import function_graph


def called_graphs(graph: Any, captured: Captured) -> Callable[[str], list[Any]]:
    """Finds them, for each op once: many variables may enter one call.

    Args:
        graph: The FuncGraph that was captured.
        captured: What it holds, with the functions that were made for its ops since.

    Returns:
        From an op's name to the FuncGraphs of what it may run, at any depth, as far as these were
        traced.
    """
    view = captured.view

    @functools.cache
    def called(name: str) -> list[Any]:
        names = run_by(view.ops[name].node, view.functions)
        return function_graph.graphs_of(graph, names, captured.functions)

    return called

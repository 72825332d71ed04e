"""Which lines of a program made the ops of traced functions, as a SavedModel would keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorflow.python.framework import error_interpolation


def debug_info(graphs: Mapping[str, Any]) -> Any:
    """The GraphDebugInfo of some functions.

    Args:
        graphs: Their FuncGraphs by name.
    """
    return error_interpolation.create_graph_debug_info_def(
        [(name, op) for name, graph in graphs.items() for op in graph.get_operations()]
    )

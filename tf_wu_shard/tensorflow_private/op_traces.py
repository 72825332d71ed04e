"""Which lines of a program made the ops of traced functions, as a SavedModel would keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorflow.python.framework import error_interpolation


def frames(graph: Any, op: str) -> list[tuple[str, int, str]]:
    """The stack in which an op of a function was made.

    Args:
        graph: The FuncGraph.
        op: The op's name. Of one that was written out of a branch or call, whose name begins with
            that of the op that had it, it is the stack of the latter.

    Returns:
        File, line and function of each frame, outermost first; none where no such op is there.
    """
    while op:
        try:
            trace = graph.get_operation_by_name(op).traceback
        except KeyError:
            op = op.rpartition("/")[0]
        else:
            return [(frame.filename, frame.lineno, frame.name) for frame in trace or ()]
    return []


def debug_info(graphs: Mapping[str, Any]) -> Any:
    """The GraphDebugInfo of some functions.

    Args:
        graphs: Their FuncGraphs by name.
    """
    return error_interpolation.create_graph_debug_info_def(
        [(name, op) for name, graph in graphs.items() for op in graph.get_operations()]
    )

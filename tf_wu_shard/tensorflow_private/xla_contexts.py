"""Whether XLA compiles a traced function as a whole, as `tf.function(jit_compile=True)` asks it to.

TPU programs are compiled in a way of their own and do not count.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tensorflow.python.ops import control_flow_ops, control_flow_util


def is_compiled(graph: Any, types: Collection[str]) -> bool:
    """Whether XLA compiles a function, or one around it that is being traced.

    Args:
        graph: The function's FuncGraph, just traced.
        types: Types of ops with an effect, which a call of a compiled function does not bring with
            it, as it does its arguments: where the function is traced for itself, they tell.
    """
    outer = getattr(graph, "outer_graph", None)
    while outer is not None:
        if _is_in_xla(outer):
            return True
        outer = getattr(outer, "outer_graph", None)
    # Automatic control dependencies, where they are on, have every op with an effect run.
    effects = graph.control_outputs or graph.get_operations()
    return any(op.type in types and _is_in_xla(op) for op in effects)


def _is_in_xla(where: Any) -> bool:
    """Whether an op was made, or ops of a graph are made now, for XLA to compile."""
    context = control_flow_util.GetContainingXLAContext(where._get_control_flow_context())
    # A TPU's context is a class of its own, made of this one.
    return type(context) is control_flow_ops.XLAControlFlowContext

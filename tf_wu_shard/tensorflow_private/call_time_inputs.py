"""Inputs of a traced function that Python code fills in at each call: keys of collectives."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph as func_graph_module

from tf_wu_shard.tensorflow_private.instance_keys import InstanceKeys

# Marks a Placeholder that Python code fills in at each call, as it does with instance keys of
# collectives, and names it. A new one with the name of another, and a number, gets a key of its
# group and device, see `instance_keys`; new ones do in the order of their numbers.
CALL_TIME = "_wu_shard_call_time"


def call_time_inputs(graph: Any) -> frozenset[str]:
    """Names of the placeholders for numbers that Python code counts when a function is called.

    The body of a loop captures those of the function around it.

    Args:
        graph: Its FuncGraph.
    """
    numbers = (p for p in graph.inputs if p.dtype == tf.int32 and p.shape.rank == 0)
    return frozenset(p.op.name for p in numbers if _call_time_code(p) is not None)


def another_key(placeholder: Any) -> tuple[Any, Any] | Any:
    """What fills in another placeholder with an instance key of the same group and device.

    Args:
        placeholder: One of `call_time_inputs`.

    Returns:
        The code and what it returns, a TypeSpec; or, for a placeholder that stands for one of the
        graph around, a tensor of that graph to capture.
    """
    found = _call_time_code(placeholder)
    assert found is not None, f"{placeholder} is filled in with what was known before"
    code, spec, outside = found
    if outside is None:
        return InstanceKeys.beside(code).following, spec
    around = outside.graph
    inner = another_key(outside)
    if isinstance(inner, tuple):
        with around.as_default():
            return around.capture_call_time_value(*inner)
    return around.capture(inner)


def _call_time_code(placeholder: Any) -> tuple[Any, Any, Any] | None:
    """The code that fills a placeholder in, what it returns, and what the placeholder captures."""
    captures = placeholder.graph._function_captures
    for key, internal in captures.by_ref_internal.items():
        if internal is placeholder:
            # What TensorFlow keeps wraps the code that was given to it, and goes by its first key:
            # a function that calls this one would give both placeholders the same value.
            code = inspect.getclosurevars(captures.by_ref_external[key]).nonlocals.get("closure")
            return None if code is None else (code, captures.by_ref_tracetype[key], None)
    for outside, inside in placeholder.graph.captures:
        if inside is placeholder and isinstance(
            getattr(outside, "graph", None), func_graph_module.FuncGraph
        ):
            found = _call_time_code(outside)
            return found and (*found[:2], outside)
    return None

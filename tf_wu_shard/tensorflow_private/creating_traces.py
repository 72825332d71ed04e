"""Traces in which variables are made, as where an optimizer makes its slots in the first step.

`tf.function` makes another trace then, in which none may be made, and gives the variables their
values: ahead of the first run where it can take their initial values out of the trace, and else by
running the trace that made them once. From then on only the other trace runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.core.function.polymorphism import function_cache
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import ops

from tf_wu_shard.tensorflow_private import function_graph, resources, tpu_graph
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.traced_graphs import is_left_to_caller
from tf_wu_shard.tensorflow_private.wrapping import wrap_once

# Noted on a function's FuncGraph: that variables were made in it; and without which values it runs
# at most, as references. Noted on the handle of such a variable: the reference to it.
_MAKES = "_wu_shard_makes"
_AWAITED = "_wu_shard_awaited"


def install(wanted: Callable[[], bool]) -> None:
    """Keeps no trace for later calls that was made before its variables had values.

    Nor one that was left to whoever called the function then.

    Where the trace that made variables is run to give them their values, the other one is made
    before that, and TensorFlow would go on with it. Without it, the next call is traced again and
    finds all there. A second call changes nothing.

    Args:
        wanted: Whether to, asked for each such trace.
    """

    def add(original: Any, cache: Any, fn: Any, context: Any = None) -> None:
        early = [] if makes_variables(fn.graph) else _without_value(fn.graph)
        if early and wanted():
            setattr(fn.graph, _AWAITED, early)
        elif not is_left_to_caller(fn.graph):
            original(cache, fn, context)

    wrap_once(function_cache.FunctionCache, "add", add)


def _without_value(graph: Any) -> list[Any]:
    """References to the variables that a function uses, traces made and have no value yet."""
    handles = (handle for handle, _ in function_graph.captured_handles(graph))
    made = (getattr(handle, _AWAITED, None) for handle in handles)
    return [one for one in made if one is not None and not _have_values([one])]


def note(variable: Any) -> None:
    """Notes a distributed variable if a function is being traced and has just made it.

    Args:
        variable: The variable.
    """
    graph = ops.get_default_graph()
    made = [
        weakref.ref(component)
        for component in variable.values
        if isinstance(component, polymorphic_function.UnliftedInitializerVariable)
    ]
    if not made or not graph.building_function:
        return
    function = function_graph.function_of(graph)
    setattr(function, _MAKES, True)
    setattr(function, _AWAITED, [*getattr(function, _AWAITED, ()), *made])
    handles = [original_handle(component) for component in variable.values]
    for handle, reference in zip(handles, made, strict=True):
        setattr(handle, _AWAITED, reference)
    packed = tpu_graph.packed_handle(variable)
    if packed is not None:
        setattr(packed, _AWAITED, made[0])


def makes_variables(graph: Any) -> bool:
    """Whether variables were made while a function was traced.

    Args:
        graph: The FuncGraph of the function, or of a branch or body in it.
    """
    return hasattr(function_graph.function_of(graph), _MAKES)


def is_over(graph: Any) -> bool:
    """Whether a function was to run only while variables had no values, and all have them now.

    That is the trace that made them, and the other one if it was made before they had values.

    Args:
        graph: The FuncGraph of the function, or of a branch or body in it.
    """
    awaited = getattr(function_graph.function_of(graph), _AWAITED, None)
    if awaited is None or not _have_values(awaited):
        return False
    awaited.clear()
    return True


def carry_over(graph: Any, new: Any) -> None:
    """Notes on the FuncGraph that takes the place of another what was noted on that."""
    for note_on in (_MAKES, _AWAITED):
        if hasattr(graph, note_on):
            setattr(new, note_on, getattr(graph, note_on))


def _have_values(references: Iterable[Any]) -> bool:
    """Whether all variables that are still there have a value."""
    components = (reference() for reference in references)
    return resources.have_values([original_handle(c) for c in components if c is not None])

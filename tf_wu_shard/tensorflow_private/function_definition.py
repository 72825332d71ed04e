"""The last moment before a traced graph becomes a function that TensorFlow can run.

`install` lets the definition that TensorFlow runs be another than the graph that Python keeps:
whatever looks at the FuncGraph, other passes and gradients included, sees what was traced, and so
does whatever loads a SavedModel of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorflow.core.function.polymorphism import function_type as function_type_lib
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import c_api_util, ops
from tensorflow.python.saved_model import save_context
from tensorflow.python.util import compat

from tf_wu_shard.tensorflow_private.wrapping import wrap_once

Find = Callable[[str], Any | None]

# From a FunctionDef and a way to find others by name: the one to run, and more that it calls.
Lower = Callable[[Any, Find], tuple[Any, Iterable[Any]]]


# The FunctionDefs as they were traced of functions that run another one, by name.
_traced: dict[bytes, Any] = {}

# Names of functions that only such definitions call.
_added: set[bytes] = set()


def install(concerns: Callable[[Any], bool], lower: Lower) -> bool:
    """Replaces the definitions of functions as they are made.

    Args:
        concerns: Whether a FuncGraph's definition is to be replaced; asked of every one that is not
            traced into a graph of TensorFlow 1.
        lower: Makes the definition to run; it has the same name, arguments and results.

    Returns:
        Whether it was not installed before.
    """

    def from_func_graph(original: Any, name: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        function = original(name, graph, *args, **kwargs)
        # What is traced into a graph of TensorFlow 1 is its builder's, who may only save it.
        if ops.executing_eagerly_outside_functions() and concerns(graph):
            _replace(function, lower)
        return function

    if not wrap_once(atomic_function, "from_func_graph", from_func_graph):
        return False
    _export_as_traced()
    return True


def op_types(graph: Any) -> set[str]:
    """The types of all ops of a FuncGraph."""
    return {op.type for op in graph.get_operations()}


def called_functions(graph: Any) -> set[str]:
    """Names of the functions that a FuncGraph may call, theirs included."""
    return {compat.as_str(name) for name in graph._functions}


def definition_of(name: str) -> Any | None:
    """The FunctionDef that TensorFlow would run under this name now, or None."""
    runtime = context.context()
    return runtime.get_function_def(name) if runtime.has_function(name) else None


def function_names() -> set[str]:
    """Names of all functions that TensorFlow holds now."""
    return set(context.context().list_function_names())


def _replace(function: Any, lower: Lower) -> None:
    """Gives a function, which nothing has called yet, another definition."""
    runtime = context.context()
    traced = function.definition
    definition, added = lower(traced, definition_of)
    # Whatever holds the function holds those it calls, by its children.
    children = [
        atomic_function.from_function_def(new, function_type_lib.FunctionType([])) for new in added
    ]
    function._children.extend(children)
    runtime.remove_function(function.name)
    runtime.add_function_def(definition)
    # Other threads may trace meanwhile.
    for name in [name for name in list(_traced) if not runtime.has_function(name)]:
        _traced.pop(name, None)
    _traced[function.name] = traced
    _added.difference_update([name for name in list(_added) if not runtime.has_function(name)])
    _added.update(child.name for child in children)


def _export_as_traced() -> None:
    """Lets a SavedModel hold what was traced, and not what runs here in its place."""
    kind = atomic_function.AtomicFunction
    run, children = kind._c_func.fget, kind.children.fget

    def _c_func(self: Any) -> Any:
        if self.name not in _traced or not save_context.in_save_context():
            return run(self)
        text = _traced[self.name].SerializeToString()
        imported = pywrap_tf_session.TF_FunctionImportFunctionDef(text)
        return c_api_util.ScopedTFFunction(imported, self.name)

    def traced_children(self: Any) -> Any:
        found = children(self)
        if not save_context.in_save_context():
            return found
        return [child for child in found if child.name not in _added]

    kind._c_func = property(_c_func)
    kind.children = property(traced_children)

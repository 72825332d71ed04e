"""Sees every FuncGraph as soon as it is traced, and may put another in its place.

Those of branches and loop bodies are seen as well, each before the function that it is a part of.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorflow.core.function.polymorphism.function_cache import FunctionCache
from tensorflow.python.framework import func_graph as func_graph_module

from tf_wu_shard.tensorflow_private.function_graph import is_branch_or_body
from tf_wu_shard.tensorflow_private.wrapping import unwrap, wrap_once

_TRACING = "func_graph_from_py_func"

# Noted on a FuncGraph while `process` sees it: the Python function that it was traced from.
_TRACED_FROM = "_wu_shard_traced_from"

# Noted on a FuncGraph that was left to whoever called its function.
_LEFT_TO_CALLER = "_wu_shard_left_to_caller"


def install(process: Callable[[Any, float], Any]) -> bool:
    """Lets `process` see every traced FuncGraph; what it returns is used instead.

    Args:
        process: From a FuncGraph, and the seconds that tracing it took, to the same or another
            FuncGraph.

    Returns:
        Whether it was not installed before.
    """

    def func_graph_from_py_func(
        original: Any, name: Any, python_func: Any, *args: Any, **kwargs: Any
    ) -> Any:
        start = time.perf_counter()
        graph = original(name, python_func, *args, **kwargs)
        seconds = time.perf_counter() - start
        # Only while it is looked at, as the graph would keep alive what the function leads to.
        setattr(graph, _TRACED_FROM, python_func)
        try:
            return process(graph, seconds)
        finally:
            delattr(graph, _TRACED_FROM)

    return wrap_once(func_graph_module, _TRACING, func_graph_from_py_func)


def replace(process: Callable[[Any, float], Any]) -> None:
    """Installs `process` in the place of what was installed."""
    unwrap(func_graph_module, _TRACING)
    install(process)


def traced_unseen(function: Callable[..., Any], signature: list[Any]) -> Any:
    """Traces a function that is only to be looked at: what `install` put in does not see it.

    Args:
        function: What to trace.
        signature: The TensorSpecs of its arguments.

    Returns:
        The FuncGraph.
    """
    original = inspect.unwrap(func_graph_module.func_graph_from_py_func)
    return original("update", function, (), {}, signature=signature)


def traced_from(graph: Any) -> Any | None:
    """The Python function that a FuncGraph was just traced from; None when that is over."""
    return getattr(graph, _TRACED_FROM, None)


def existing_graphs() -> list[Any]:
    """Every FuncGraph alive in this process; walks all objects, so not for every day."""
    return [o for o in gc.get_objects() if isinstance(o, func_graph_module.FuncGraph)]


def leave_to_caller(graph: Any) -> None:
    """Notes on a FuncGraph, just traced, that only who is calling its function knows to run it.

    Whoever calls the function by itself later gets another trace.
    """
    setattr(graph, _LEFT_TO_CALLER, True)


def is_left_to_caller(graph: Any) -> bool:
    """Whether `leave_to_caller` was said of a FuncGraph."""
    return hasattr(graph, _LEFT_TO_CALLER)


def forget(graphs: Iterable[Any]) -> None:
    """Has functions be traced anew when they are called next; who calls a trace goes on doing so.

    Walks all objects where there is a trace to forget, so not for every day.

    Args:
        graphs: FuncGraphs of the traces to forget. A branch is traced with what takes it, each
            time, so that there is none.
    """
    ids = {id(graph) for graph in graphs if not is_branch_or_body(graph)}
    caches = [o for o in gc.get_objects() if type(o) is FunctionCache] if ids else []
    for cache in caches:
        for (seen_in, function_type), function in list(cache._primary.items()):
            if id(function.graph) in ids:
                cache.delete(function_type, seen_in)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Puts Python's cyclic garbage collector off.

    Thousands of small objects are made while a graph is rebuilt, none of them garbage; each full
    collection that they set off walks all of TensorFlow's and Keras' objects, for 0.2 s.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

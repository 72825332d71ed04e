"""Seeing every function that TensorFlow traces, after every pass that rewrites it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow.python.framework import func_graph as func_graph_module


@contextlib.contextmanager
def watching(see: Callable[[Any], None]) -> Iterator[None]:
    """Shows every FuncGraph to `see` as soon as it is traced, until the block ends.

    Args:
        see: Gets the FuncGraph as it will be used. What it raises leaves the trace as if the traced
            Python code had raised it.
    """
    original = func_graph_module.func_graph_from_py_func

    @functools.wraps(original)
    def func_graph_from_py_func(*args: Any, **kwargs: Any) -> Any:
        graph = original(*args, **kwargs)
        see(graph)
        return graph

    func_graph_module.func_graph_from_py_func = func_graph_from_py_func
    try:
        yield
    finally:
        func_graph_module.func_graph_from_py_func = original

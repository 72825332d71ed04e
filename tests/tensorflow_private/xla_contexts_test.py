"""A function that XLA compiles is told from one that calls such a function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import func_graph as func_graph_module

from tf_wu_shard.tensorflow_private import xla_contexts

Seen = dict[str, bool]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Of each function that is traced from now on, by name, whether XLA compiles it."""
    found: Seen = {}
    original = func_graph_module.func_graph_from_py_func

    def traced(name: Any, *args: Any, **kwargs: Any) -> Any:
        graph = original(name, *args, **kwargs)
        found[graph.name] = xla_contexts.is_compiled(graph, {"AssignAddVariableOp"})
        return graph

    monkeypatch.setattr(func_graph_module, "func_graph_from_py_func", traced)
    return found


def counted(variable: tf.Variable) -> Any:
    """A Python function that writes a variable."""

    def count(by: Any) -> tf.Tensor:
        return variable.assign_add(by)

    return count


def test_a_compiled_function_is_known_however_it_is_traced(seen: Seen) -> None:
    compiled = tf.function(counted(tf.Variable(1.0)), jit_compile=True)
    compiled.get_concrete_function(tf.TensorSpec([]))
    assert seen == {"count": True}
    seen.clear()
    compiled(tf.constant(2.0, tf.float32) + 1)
    compiled(2.0)
    assert seen == {"count": True}


def test_what_a_compiled_function_calls_is_compiled_with_it(seen: Seen) -> None:
    inner = tf.function(counted(tf.Variable(1.0)))

    @tf.function(jit_compile=True)
    def outer(by: Any) -> Any:
        return tf.cond(by > 0, lambda: inner(by), lambda: -by)

    outer(tf.constant(1.0))
    assert seen["count"] and all(seen.values())


def test_what_calls_a_compiled_function_is_not_compiled_itself(seen: Seen) -> None:
    own = tf.Variable(0.0)
    compiled = tf.function(counted(tf.Variable(1.0)), jit_compile=True)

    @tf.function
    def outer() -> Any:
        # Its argument is put into the graph for the call.
        found = compiled(np.float32(2.0))
        return own.assign_add(found)

    outer()
    assert seen == {"count": True, "outer": False}


def test_without_a_compiled_function_none_is(seen: Seen) -> None:
    tf.function(counted(tf.Variable(1.0)))(1.0)
    assert seen == {"count": False}

"""Every traced FuncGraph is seen, and what is returned for it is used."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import func_graph as func_graph_module

from tf_wu_shard.tensorflow_private import traced_graphs


@pytest.fixture
def seen() -> Iterator[list[tuple[str, float, Any]]]:
    """What is seen meanwhile: the names of graphs, the seconds of tracing, and their functions."""
    before = func_graph_module.func_graph_from_py_func
    found: list[tuple[str, float, Any]] = []

    def process(graph: Any, seconds: float) -> Any:
        found.append((graph.name, seconds, traced_graphs.traced_from(graph)))
        return graph

    traced_graphs.replace(process)
    yield found
    func_graph_module.func_graph_from_py_func = before


def test_installing_twice_changes_nothing(seen: list[Any]) -> None:
    hook = func_graph_module.func_graph_from_py_func
    assert not traced_graphs.install(lambda graph, seconds: None)
    assert func_graph_module.func_graph_from_py_func is hook


def test_branches_are_seen_before_their_function(seen: list[Any]) -> None:
    @tf.function
    def chosen(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x > 0, lambda: x, lambda: -x)

    graph = chosen.get_concrete_function(tf.TensorSpec((), tf.float32)).graph
    names = [name for name, _, _ in seen]
    assert [name.partition("_")[0] for name in names] == ["cond", "cond", "chosen"]
    assert all(seconds >= 0 and function is not None for _, seconds, function in seen)
    # What a graph was traced from is known only while it is looked at.
    assert traced_graphs.traced_from(graph) is None


def test_the_graph_that_is_returned_takes_the_place(seen: list[Any]) -> None:
    other = (
        tf.function(lambda x: x + 1.0).get_concrete_function(tf.TensorSpec((), tf.float32)).graph
    )
    traced_graphs.replace(lambda graph, seconds: other)
    made = tf.function(lambda x: x * 3.0).get_concrete_function(tf.TensorSpec((), tf.float32))
    assert made.graph is other and made(tf.constant(1.0)).numpy() == 2.0


def test_what_is_traced_unseen_is_not_seen(seen: list[Any]) -> None:
    graph = traced_graphs.traced_unseen(lambda x: x + x, [tf.TensorSpec((3,), tf.float32)])
    assert seen == []
    assert [tuple(t.shape) for t in graph.outputs] == [(3,)]
    assert any(one is graph for one in traced_graphs.existing_graphs())


def test_a_forgotten_function_is_traced_anew_and_a_branch_costs_no_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    branches: list[Any] = []
    traces: list[bool] = []

    def branch(x: tf.Tensor) -> tf.Tensor:
        branches.append(tf.compat.v1.get_default_graph())
        return x

    @tf.function
    def chosen(x: tf.Tensor) -> tf.Tensor:
        traces.append(True)
        return tf.cond(x > 0, lambda: branch(x), lambda: branch(-x))

    chosen(tf.constant(1.0))
    graph = chosen.get_concrete_function(tf.TensorSpec((), tf.float32)).graph
    traced_graphs.forget([graph])
    assert chosen(tf.constant(-1.0)).numpy() == 1.0 and len(traces) == 2
    monkeypatch.setattr(gc, "get_objects", lambda: pytest.fail("all objects were walked"))
    traced_graphs.forget(branches)
    traced_graphs.forget([])


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_is_off_meanwhile_and_as_it_was_afterwards(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    try:
        with contextlib.suppress(KeyError), traced_graphs.no_garbage_collection():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == was_on
    finally:
        gc.enable()

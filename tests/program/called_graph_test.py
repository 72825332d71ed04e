"""A traced function's graph says what it is made of, and functions are made of it anew."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.program.called_graph import TracedGraph


@pytest.fixture(scope="module")
def graph() -> Any:
    inner = tf.function(lambda x: (tf.square(x), x + 1.0), autograph=False)
    outer = tf.function(lambda x: inner(x), autograph=False)
    return outer.get_concrete_function(tf.TensorSpec((None, 3))).graph


def called(graph: Any) -> tuple[str, TracedGraph]:
    (name,) = {str(op.get_attr("f").name) for op in graph.get_operations() if "Call" in op.type}
    found = TracedGraph(graph).inner(name, {})
    assert found is not None
    return name, found


def test_a_function_that_its_ops_call_is_found_and_no_other(graph: Any) -> None:
    name, inner = called(graph)
    assert any(node.op == "Square" for node in inner.body().nodes)
    assert TracedGraph(graph).inner("no_such", {}) is None
    # What was made since comes first.
    made = type("Made", (), {"graph": graph})
    again = TracedGraph(graph).inner(name, {name: made})
    assert again is not None and again.graph is graph


def test_a_body_has_as_many_results_as_when_it_was_called(graph: Any) -> None:
    _, inner = called(graph)
    assert len(inner.body().results) == 2 and len(inner.body(1).results) == 1
    assert len(inner.body().arguments) == 1


def test_shapes_are_open_where_the_trace_left_them_open(graph: Any) -> None:
    _, inner = called(graph)
    (square,) = (node.name for node in inner.body().nodes if node.op == "Square")
    assert inner.static_shape(square, 0) == (None, 3) and inner.num_results(square) == 1


def test_a_function_remade_of_its_nodes_computes_the_same(graph: Any) -> None:
    _, inner = called(graph)
    body = inner.body()
    made = inner.remade(body, [])
    again = TracedGraph(made.graph).body()
    assert {node.op for node in again.nodes} >= {"Placeholder", "Square", "AddV2"}
    assert len(again.results) == 2 and len(again.arguments) == 1

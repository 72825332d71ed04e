"""What a FuncGraph holds."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph as func_graph_module

from tf_wu_shard.tensorflow_private import function_graph


def test_what_a_handle_points_to_is_known() -> None:
    variable = tf.Variable(tf.zeros((2, 3), tf.float64))
    graph = tf.function(lambda: variable * 2.0).get_concrete_function().graph
    ((outside, placeholder),) = function_graph.captured_handles(graph)
    assert outside is variable.handle
    found = function_graph.handle_shape_and_type(placeholder)
    assert found == ((2, 3), tf.float64.as_datatype_enum)
    assert function_graph.consumer_types(placeholder) == ["ReadVariableOp"]


def test_a_branch_is_called_after_its_function() -> None:
    titles = []

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        def branch() -> tf.Tensor:
            titles.append(function_graph.title(tf.compat.v1.get_default_graph()))
            return x

        return tf.cond(x > 0, branch, lambda: -x)

    outer(tf.constant(1.0))
    assert len(titles) == 1 and titles[0].startswith("outer/cond_true_")


def test_branches_and_bodies_are_parts_of_a_function_and_called_functions_are_not() -> None:
    graphs = {}

    @tf.function
    def called(x: tf.Tensor) -> tf.Tensor:
        graphs["called"] = tf.compat.v1.get_default_graph()
        return x + 1

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        def body(y: tf.Tensor) -> tuple[tf.Tensor]:
            graphs["body"] = tf.compat.v1.get_default_graph()
            return (y + called(y),)

        def branch() -> tf.Tensor:
            graphs["branch"] = tf.compat.v1.get_default_graph()
            return tf.while_loop(lambda y: y < 3, body, (x,))[0]

        return tf.cond(x > 0, branch, lambda: -x)

    graphs["outer"] = outer.get_concrete_function(tf.constant(1.0)).graph
    parts = {n for n, g in graphs.items() if function_graph.is_part_of(g, graphs["outer"])}
    assert parts == {"body", "branch"}
    assert function_graph.is_part_of(graphs["body"], graphs["branch"])
    assert not function_graph.is_part_of(graphs["branch"], graphs["body"])


def test_a_branch_that_outlives_its_function_is_a_part_of_nothing() -> None:
    found = []

    def branched(x: tf.Tensor) -> tf.Tensor:
        def branch() -> tf.Tensor:
            found.append(tf.compat.v1.get_default_graph())
            return tf.constant(1.0)

        return tf.cond(x > 0, branch, lambda: tf.constant(2.0))

    function = tf.function(branched)
    graph = weakref.ref(function.get_concrete_function(tf.constant(1.0)).graph)
    outer = tf.function(lambda x: x).get_concrete_function(tf.constant(1.0)).graph
    del function
    gc.collect()
    assert graph() is None
    assert not function_graph.is_part_of(found[0], outer)
    assert function_graph.title(found[0]).startswith("cond_true")


def test_a_branch_in_a_graph_of_which_no_function_is_made_never_runs() -> None:
    """Keras learns the shapes that its layers yield in such a graph."""

    def branched(x: tf.Tensor, inner: list[Any]) -> tf.Tensor:
        def branch() -> tf.Tensor:
            inner.append(tf.compat.v1.get_default_graph())
            return -x

        return tf.cond(x > 0, branch, lambda: x)

    scratch, found = func_graph_module.FuncGraph("scratch"), list[Any]()
    with scratch.as_default():
        branched(tf.compat.v1.placeholder(tf.float32, ()), found)
        assert not function_graph.never_runs(found[0], scratch)
    other = tf.function(lambda x: branched(x, found)).get_concrete_function(tf.constant(1.0)).graph
    assert function_graph.never_runs(found[0], other)
    assert not function_graph.never_runs(found[1], scratch)
    assert not function_graph.never_runs(other, scratch)

"""A rebuilt function is called, nested and differentiated like the one it takes the place of."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import func_graph as func_graph_module
from tensorflow.python.ops import cond_v2, while_v2

from tf_wu_shard.tensorflow_private.graph_rebuilding import NewBody, rebuild

Point = collections.namedtuple("Point", ["x", "y"])


# Their graphs hold records of the branch they differentiate; they are not rebuilt.
_GRADIENTS_OF_CONTROL_FLOW = (cond_v2._CondGradFuncGraph, while_v2._WhileBodyGradFuncGraph)


def rebuilt(graph: Any) -> Any:
    """The same function, built anew from its own nodes."""
    return rebuild(
        graph,
        NewBody(
            graph.as_graph_def().node,
            [t.name for t in graph.outputs],
            [op.name for op in graph.control_outputs],
        ),
        new_captures={},
        dropped_captures=(),
        owners=None,
    )


@pytest.fixture
def rebuilding(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """While it lasts, every traced function is rebuilt; the names of those that were."""
    traced = func_graph_module.func_graph_from_py_func
    names: list[str] = []

    def hook(*args: Any, **kwargs: Any) -> Any:
        graph = traced(*args, **kwargs)
        if type(graph) in _GRADIENTS_OF_CONTROL_FLOW:
            return graph
        names.append(graph.name)
        return rebuilt(graph)

    monkeypatch.setattr(func_graph_module, "func_graph_from_py_func", hook)
    yield names
    assert names, "nothing was rebuilt"


def both(body: Callable[..., Any], *args: Any) -> Any:
    """What a function returns once rebuilt; it is what its Python returns."""
    args = tf.nest.map_structure(tf.constant, args)
    expected = body(*args)
    found = tf.function(body, autograph=False)(*args)
    tf.nest.assert_same_structure(expected, found, expand_composites=True)
    for one, other in zip(
        tf.nest.flatten(expected, expand_composites=True),
        tf.nest.flatten(found, expand_composites=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    return found


ONE = np.array([1.0, 2.0, 3.0], np.float32)


@pytest.mark.usefixtures("rebuilding")
def test_arguments_keep_their_places() -> None:
    both(lambda a, b: a - b * 2.0, ONE, ONE * 5.0)
    both(lambda a, pair: a - pair["x"] * pair["y"], ONE, {"y": ONE * 2.0, "x": ONE * 3.0})


@pytest.mark.usefixtures("rebuilding")
def test_structured_outputs_keep_their_structure() -> None:
    found = both(
        lambda a: {"t": (a, None, [a + 1.0]), "p": Point(a * 2.0, {"z": a * 3.0}), "n": None}, ONE
    )
    assert isinstance(found["p"], Point)


@pytest.mark.usefixtures("rebuilding")
def test_composite_tensors_come_back() -> None:
    both(lambda a: {"s": tf.sparse.from_dense(a), "d": a + 1.0}, ONE)
    both(lambda a: tf.RaggedTensor.from_row_lengths(a, [1, 2]), ONE)
    both(lambda a: tf.IndexedSlices(a, tf.constant([0, 2, 1])), ONE)


@pytest.mark.usefixtures("rebuilding")
def test_one_tensor_returned_twice_and_an_argument_handed_through() -> None:
    def body(a: tf.Tensor) -> Any:
        doubled = a * 2.0
        return doubled, a, doubled, a

    both(body, ONE)


@pytest.mark.usefixtures("rebuilding")
def test_captured_tensors_and_variables_are_bound_to_their_own() -> None:
    first, second = tf.Variable(ONE), tf.Variable(ONE * 10.0)
    outside = tf.constant(ONE * 100.0)
    function = tf.function(lambda a: (second * 2.0, first - a, outside + second), autograph=False)
    for _ in range(2):
        found = function(tf.constant(ONE))
        np.testing.assert_array_equal(found[0], second * 2.0)
        np.testing.assert_array_equal(found[1], first - ONE)
        np.testing.assert_array_equal(found[2], outside + second)
        first.assign_add(ONE)
        second.assign(first * 7.0)


@pytest.mark.usefixtures("rebuilding")
def test_effects_happen_once_and_in_order() -> None:
    variable = tf.Variable(1.0)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        variable.assign_add(1.0)
        before = variable.read_value()
        variable.assign(variable * 10.0)
        return before

    assert [float(step()), float(variable)] == [2.0, 20.0]
    assert [float(step()), float(variable)] == [21.0, 210.0]


@pytest.mark.usefixtures("rebuilding")
def test_branches_and_loops_run_as_before() -> None:
    scale = tf.Variable(3.0)

    def body(a: tf.Tensor) -> tf.Tensor:
        def grow(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, tf.cond(x[0] > 4.0, lambda: x - scale, lambda: x * scale)

        return tf.while_loop(lambda i, _: i < 5, grow, [tf.constant(0), a])[1]

    both(body, ONE)
    scale.assign(2.0)
    both(body, ONE)


@pytest.mark.usefixtures("rebuilding")
def test_a_nested_function_is_rebuilt_where_it_stands() -> None:
    variable = tf.Variable(ONE)

    @tf.function(autograph=False)
    def inner(a: tf.Tensor) -> dict[str, tf.Tensor]:
        variable.assign_add(a)
        return {"value": variable * a}

    @tf.function(autograph=False)
    def outer(a: tf.Tensor) -> tf.Tensor:
        return inner(a)["value"] + inner(a * 2.0)["value"]

    np.testing.assert_array_equal(outer(tf.constant(ONE)), 2 * ONE * ONE + 4 * ONE * 2 * ONE)


@pytest.mark.usefixtures("rebuilding")
def test_gradients_flow_through_from_inside_and_outside() -> None:
    weight = tf.Variable(ONE)

    @tf.function(autograph=False)
    def cubed(a: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.cond(a[0] > 0.0, lambda: weight**3.0, lambda: a) * a)

    @tf.function(autograph=False)
    def inside(a: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(a)
            loss = cubed(a)
        return tape.gradient(loss, [weight, a])

    given = tf.constant(ONE)
    with tf.GradientTape() as tape:
        tape.watch(given)
        loss = cubed(given)
    expected = [3.0 * ONE**2.0 * ONE, ONE**3.0]
    for found in (inside(given), tape.gradient(loss, [weight, given])):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.usefixtures("rebuilding")
def test_deferred_captures_are_asked_for_at_every_call() -> None:
    present = [1.0]

    def body(a: tf.Tensor) -> tf.Tensor:
        graph = tf.compat.v1.get_default_graph()
        late = graph.capture_call_time_value(
            lambda: tf.constant(present[0]), tf.TensorSpec((), tf.float32)
        )
        return a + late + variable

    variable = tf.Variable(ONE)
    function = tf.function(body, autograph=False)
    np.testing.assert_array_equal(function(tf.constant(ONE)), ONE * 2.0 + 1.0)
    present[0] = 10.0
    np.testing.assert_array_equal(function(tf.constant(ONE)), ONE * 2.0 + 10.0)


@pytest.mark.usefixtures("rebuilding")
def test_a_new_shape_is_traced_anew() -> None:
    function = tf.function(lambda a: tf.shape(a) + 1, autograph=False)
    assert [int(function(tf.constant(ONE))[0]), int(function(tf.constant(ONE[:2]))[0])] == [4, 3]


def test_the_old_graph_is_left_as_it_was() -> None:
    graph = tf.function(lambda a: a * 2.0).get_concrete_function(tf.constant(ONE)).graph
    before = graph.as_graph_def().SerializeToString(deterministic=True)
    new = rebuilt(graph)
    assert new is not graph and type(new) is type(graph)
    assert graph.as_graph_def().SerializeToString(deterministic=True) == before
    assert new.as_graph_def() == graph.as_graph_def()


def test_wishes_to_be_placed_with_what_is_not_here_go_and_the_others_stay() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        y = tf.identity(x, name="y")
        for name, near in (("with_x", x), ("with_y", y)):
            with tf.compat.v1.colocate_with(near):
                y = tf.negative(y, name=name)
        return tf.abs(y, name="with_what_is_outside")

    graph = tf.function(body, autograph=False).get_concrete_function(ONE).graph
    outside = tf.compat.v1.AttrValue()
    outside.list.s.append(b"loc:@outside")
    graph.get_operation_by_name("with_what_is_outside")._set_attr("_class", outside)
    new = rebuilt(graph)
    found = {op.name: op.colocation_groups() for op in new.get_operations()}
    assert found["with_x"] == [b"loc:@x"]
    assert found["with_y"] == [b"loc:@y"]
    assert "_class" not in new.get_operation_by_name("with_what_is_outside").node_def.attr

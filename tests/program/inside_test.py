"""A branch or a loop's body is seen with what its program knows of its operands."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.calls import BRANCHES, LOOPS
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.inside import differs, view_inside
from tf_wu_shard.step.capture import capture


def inside(step: Any, variable: tf.Variable) -> GraphView:
    """The first branch or body in a step of two replicas, of an argument and a variable."""
    function = tf.function(step, autograph=False, input_signature=[tf.TensorSpec((4,))])
    graph: Any = function.get_concrete_function().graph
    captured = capture(graph)
    # A replica's part of the batch is its own.
    own = captured.view.with_inputs([graph.inputs[0].op.name], {})
    captured = dataclasses.replace(captured, view=own)
    op = next(op for op in captured.view if op.type in BRANCHES | LOOPS)
    attribute = "body" if "While" in op.type else "then_branch"
    name = op.attribute(attribute).func.name
    called = TracedGraph(graph).inner(name, {})
    assert called is not None and variable is not None
    found = view_inside(captured, op, called, name, 2)
    assert found is not None
    return found


def result_differs(view: GraphView, index: int = 0) -> bool:
    return differs(view, 2)(view.outputs[index])


def test_a_branch_knows_the_variables_that_it_is_handed() -> None:
    variable = tf.Variable(tf.ones((4,)), name="w")

    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x[0] > 0.0, lambda: variable.read_value(), lambda: x)

    view = inside(step, variable)
    (ref,) = view.variables.values()
    assert ref.shape == (4,)


def test_what_each_replica_has_of_its_own_differs_inside_too() -> None:
    variable = tf.Variable(tf.ones((4,)))

    def own(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(variable[0] > 0.0, lambda: x * 2.0, lambda: x)

    def same(x: tf.Tensor) -> tf.Tensor:
        shared = tf.constant([1.0, 2.0, 3.0, 4.0]) * 2.0
        return tf.cond(x[0] > 0.0, lambda: shared + 1.0, lambda: shared)

    assert result_differs(inside(own, variable))
    assert not result_differs(inside(same, variable))


def test_what_a_turn_of_a_loop_leaves_different_the_next_one_begins_with() -> None:
    variable = tf.Variable(tf.ones((4,)))

    def step(x: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> Any:
            return i + 1, second * 2.0, second + x

        zeros = tf.zeros((4,))
        return tf.while_loop(lambda i, *_: i < 3, body, [tf.constant(0), zeros, zeros])[1]

    view = inside(step, variable)
    assert isinstance(view.outputs[0], Value)
    differing = [differs(view, 2)(value) for value in view.outputs]
    assert any(differing) and not all(differing)

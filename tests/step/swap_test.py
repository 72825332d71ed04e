"""What takes a traced function's place computes what its step has become; unchanged, it stays."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.text_graph import DIALECT
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.capture import capture
from tf_wu_shard.step.step import Step
from tf_wu_shard.step.swap import body_of, rebuilt


def traced() -> Step:
    """A function that takes a number and returns its square."""
    function = tf.function(
        lambda x: tf.square(x, name="result"),
        autograph=False,
        input_signature=[tf.TensorSpec((), tf.float32)],
    )
    graph = function.get_concrete_function().graph
    return Step(graph, capture(graph), DIALECT)


def cubed(step: Step) -> Step:
    """The step, which returns its square times its argument."""
    (value,) = step.view.outputs
    product = tf.compat.v1.NodeDef(name="cube", op="Mul", input=[str(value), "x"])
    product.attr["T"].type = tf.float32.as_datatype_enum
    nodes = [*(op.node for op in step.view), product]
    captured = step.captured.with_nodes(nodes, {}, outputs=(Value("cube"),))
    return dataclasses.replace(step, captured=captured, is_changed=True)


def of_three(graph: Any) -> float:
    """What a function's graph returns for 3."""

    @tf.function
    def called() -> Any:
        given = {"x": tf.constant(3.0)}
        return tf.graph_util.import_graph_def(
            graph.as_graph_def(), given, [graph.outputs[0].name], name=""
        )[0]

    return float(called())


def test_a_step_that_no_pass_changed_keeps_its_function() -> None:
    step = traced()
    assert rebuilt(step) is step.graph


def test_a_changed_one_gets_a_function_of_its_view_and_the_traced_one_stays() -> None:
    step = traced()
    graph = rebuilt(cubed(step))
    assert [of_three(step.graph), of_three(graph)] == [9.0, 27.0]
    assert [t.op.name for t in graph.inputs] == [t.op.name for t in step.graph.inputs]


def test_a_body_that_a_pass_made_itself_comes_before_the_view() -> None:
    step = cubed(traced())
    body = body_of(step)
    assert [node.name for node in body.nodes] == [op.name for op in step.view]
    assert [*body.outputs] == ["cube:0"]
    squared = dataclasses.replace(body, outputs=[str(traced().graph.outputs[0].name)])
    assert of_three(rebuilt(dataclasses.replace(step, body=squared))) == 9.0


def test_nodes_that_tensorflow_does_not_accept_are_an_error_of_its() -> None:
    step = traced()
    wrong = tf.compat.v1.NodeDef(name="cube", op="Mul", input=["x"])
    nodes = [*(op.node for op in step.view), wrong]
    captured = step.captured.with_nodes(nodes, {}, outputs=(Value("cube"),))
    with pytest.raises(tf.errors.InvalidArgumentError):
        rebuilt(dataclasses.replace(step, captured=captured, is_changed=True))

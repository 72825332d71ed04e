"""A traced function is read once, and all that it holds is there without it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tests.tensorflow_private.call_time_inputs_test import counted
from tf_wu_shard.tensorflow_private.call_time_inputs import CALL_TIME
from tf_wu_shard.tensorflow_private.traced_function import TracedFunction, read


@pytest.fixture(scope="module")
def variable() -> Any:
    return tf.Variable([1.0, 2.0], name="weight")


@pytest.fixture(scope="module")
def found(variable: Any) -> TracedFunction:
    outside = tf.constant([3.0, 4.0])

    @tf.function
    def step(argument: Any) -> tuple[Any, Any]:
        variable.assign_sub(argument * outside)
        halves = tf.split(argument, 2)
        return halves[1], variable.read_value()

    return read(step.get_concrete_function(tf.TensorSpec((2,), tf.float32)).graph)


def test_inputs_are_variables_constants_or_values(found: TracedFunction, variable: Any) -> None:
    (one,) = found.variables
    assert (one.name, one.shape, one.dtype) == ("weight", (2,), tf.float32.as_datatype_enum)
    placeholders = {node.name for node in found.graph_def.node if node.op == "Placeholder"}
    values = {*found.inputs_by_value}
    assert placeholders - values - {*found.constants} == {one.placeholder}
    assert "argument" in values and values.isdisjoint(found.constants)


def test_what_it_returns_and_what_must_run_are_named(found: TracedFunction) -> None:
    ops = {node.name: node.op for node in found.graph_def.node}
    (half, number), (whole, _) = found.outputs
    assert found.shape_of(half, 0) == (1,) and number == 0
    assert found.shape_of(whole, 0) == (2,)
    assert "AssignSubVariableOp" in {ops[name] for name in found.control_outputs}


def test_inputs_that_are_filled_in_at_each_call_are_marked() -> None:
    traced = read(counted().graph)
    marked = {node.name for node in traced.graph_def.node if CALL_TIME in node.attr}
    assert len(marked) == 1 and marked < {*traced.inputs_by_value}

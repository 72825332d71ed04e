"""Graphs of traced functions, whose variables are outside of the file."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def step_of(strategy: tf.distribute.Strategy) -> Any:
    """The FuncGraph of a step that trains two matrices with Adam."""
    with strategy.scope():
        weights = [tf.Variable(tf.ones((64, 64)), name=f"w{i}") for i in range(2)]
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(weights)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((4, 64))])
    def step(rows: tf.Tensor) -> Any:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                losses = [tf.reduce_sum(tf.tanh(rows @ weight)) for weight in weights]
                loss = tf.add_n(losses)
            gradients = tape.gradient(loss, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return loss

        return strategy.run(replica)

    concrete = step.get_concrete_function()
    concrete.graph.keeps = (weights, optimizer, concrete)
    return concrete.graph


def answered(file: pathlib.Path, message: Any) -> Inspection:
    file.write_bytes(message.SerializeToString())
    return inspect(read_model(file), Question(replicas=2))


@pytest.fixture(scope="module")
def one_device() -> Any:
    return step_of(tf.distribute.get_strategy())


def test_what_the_graph_is_given_are_its_variables(tmp_path: pathlib.Path, one_device: Any) -> None:
    inspection = answered(tmp_path / "g.pb", one_device.as_graph_def(add_shapes=True))
    assert inspection.variables == 8 and inspection.verdict == "1 function trains"
    (found,) = inspection.functions
    assert [update.optimizer for update in found.updates] == ["adam-like"] * 2
    assert found.report is not None
    assert [v.layout for v in found.report.variables] == ["flat 4096/2"] * 2
    assert any("does not say which variables are trained" in n for n in found.report.notes)


def test_a_function_that_a_library_holds_is_planned_too(
    tmp_path: pathlib.Path, one_device: Any
) -> None:
    *_, concrete = one_device.keeps

    @tf.function(input_signature=[tf.TensorSpec((4, 64))])
    def outer(rows: tf.Tensor) -> tf.Tensor:
        return tf.identity(concrete(rows))

    graph_def = outer.get_concrete_function().graph.as_graph_def(add_shapes=True)
    inspection = answered(tmp_path / "g.pb", graph_def.library)
    (found,) = inspection.functions
    assert found.trains and len(found.updates) == 2


def test_without_shapes_the_answer_says_that_they_are_missing(
    tmp_path: pathlib.Path, one_device: Any
) -> None:
    inspection = answered(tmp_path / "g.pb", one_device.as_graph_def())
    (found,) = inspection.functions
    assert found.trains and found.report is not None and not found.report.variables
    assert all("the shape of its gradient" in left.reason for left in found.report.left_alone)


def test_writes_of_variables_of_no_known_shape_are_not_said_to_be_of_no_weight(
    tmp_path: pathlib.Path,
) -> None:
    variable = tf.Variable(tf.ones((8,)))
    step = tf.function(lambda: variable.assign_sub(tf.sin(variable)), autograph=False)
    graph = step.get_concrete_function().graph
    inspection = answered(tmp_path / "g.pb", graph.as_graph_def())
    assert inspection.verdict == "no function is known to train"
    (found,) = inspection.functions
    assert "the file tells no variable's shape" in found.verdict
    (found,) = answered(tmp_path / "g.pb", graph.as_graph_def(add_shapes=True)).functions
    assert found.verdict == "1 variable writes, none of what is known to be a weight"


def test_a_graph_that_only_reads_has_nothing_to_shard(tmp_path: pathlib.Path) -> None:
    variable = tf.Variable(tf.ones((8,)))
    graph = tf.function(lambda: variable * 2.0).get_concrete_function().graph
    inspection = answered(tmp_path / "g.pb", graph.as_graph_def(add_shapes=True))
    assert inspection.variables == 1
    assert inspection.verdict == "0 variable writes, nothing to shard"


def test_copies_of_replicas_are_not_taken_for_a_step_of_one_device(
    tmp_path: pathlib.Path, strategy_of: Strategies
) -> None:
    graph = step_of(strategy_of(2))
    inspection = answered(tmp_path / "g.pb", graph.as_graph_def(add_shapes=True))
    (found,) = inspection.functions
    assert found.trains and not found.updates
    assert found.verdict.startswith("left alone: it sums gradients over replicas")

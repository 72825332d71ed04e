"""What an edit of a step refuses, and which sums are a weight's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard import WuShardError
from tf_wu_shard.graph_pass import step_of
from tf_wu_shard.step.capture import capture
from tf_wu_shard.step.edit import StepEdit
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage.own_variables import beside

Strategies = Callable[[int], tf.distribute.Strategy]


def traced(strategy: tf.distribute.Strategy, replica: Callable[[], Any]) -> Step:
    graph = tf.function(lambda: strategy.run(replica), autograph=False)
    graph = graph.get_concrete_function().graph
    return step_of(graph, capture(graph), None)


def test_a_step_takes_variables_of_ones_own_once(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        weight = tf.Variable(tf.ones((8,)))

    def replica() -> None:
        context = tf.distribute.get_replica_context()
        weight.assign_sub(context.all_reduce("SUM", tf.tanh(weight)))

    step = traced(strategy, replica)
    edit, own = StepEdit(step), beside(weight, "one")
    edit.handles(own, "one")
    with pytest.raises(WuShardError, match="the step uses these variables already"):
        edit.handles(own, "again")
    with pytest.raises(WuShardError, match="the step uses these variables already"):
        StepEdit(edit.done()).handles(own, "later")
    assert StepEdit(step).done() is step


def test_a_number_that_gradients_are_divided_by_is_no_gradient(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        weight = tf.Variable(tf.ones((8,)), name="weight")

    def replica() -> None:
        context = tf.distribute.get_replica_context()
        tokens = context.all_reduce("SUM", tf.reduce_sum(tf.random.uniform(())))
        weight.assign_sub(context.all_reduce("SUM", tf.tanh(weight)) / tokens)

    step = traced(strategy, replica)
    assert sorted(step.weight_of(reduction) for reduction in step.reductions) == ["", "weight"]


def test_statistics_that_are_not_trained_are_no_gradients(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        mean = tf.Variable(tf.zeros((8,)), trainable=False, name="mean")

    def replica() -> None:
        context = tf.distribute.get_replica_context()
        mean.assign(context.all_reduce("MEAN", tf.random.uniform((8,))))

    step = traced(strategy, replica)
    assert [step.weight_of(reduction) for reduction in step.reductions] == [""]


def test_what_reads_an_op_that_goes_reads_another(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        weight = tf.Variable(tf.ones((8,)), name="weight")

    def replica() -> None:
        weight.assign_sub(tf.tanh(weight))

    step = traced(strategy, replica)
    gone = [op for op in step.view if op.type == "Tanh"]
    edit = StepEdit(step)
    for op in gone:
        at = edit.at(0, "instead")
        edit.replace_op(op.name, at.op("Neg", [op.inputs[0]], "neg"))
    after = edit.done().view
    assert not {op.name for op in gone} & after.ops.keys()
    read = [after.producer(op.inputs[1]).type for op in after if op.type == "AssignSubVariableOp"]
    assert read == ["Neg", "Neg"]
    without = StepEdit(step)
    without.replace_op(gone[0].name, None)
    with pytest.raises(WuShardError, match="needs what is taken out of the step"):
        without.done()

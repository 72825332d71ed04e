"""Replicas begin one after the other where that is proved to block nobody, and compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.weight_update.rewrite.stages import Stages, run_stages
from tf_wu_shard.graph.ordering import in_cycles
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.reachable import reachable
from tf_wu_shard.weight_update.plan import planner
from tf_wu_shard.weight_update.rewrite.staggering import stagger

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
Between = Callable[[Any], Any]


def unchanged(value: Any) -> Any:
    return value


def mean_over_replicas(value: Any) -> Any:
    context = tf.distribute.get_replica_context()
    return value - context.all_reduce(tf.distribute.ReduceOp.MEAN, value)


def sum_of_shards(value: Any) -> Any:
    """What only replicas of one process may do: each takes what another computed."""
    context = tf.distribute.get_replica_context()

    def merged(strategy: Any, own: Any) -> Any:
        return tf.add_n(strategy.experimental_local_results(own))

    return value - context.merge_call(merged, args=(value,))


def looked_up_in_python(value: Any) -> Any:
    return tf.ensure_shape(tf.py_function(lambda v: v, [value], tf.float32), value.shape)


@tf.function
def noisy(value: Any) -> Any:
    return value + tf.random.normal(value.shape) * 0.0


class Step:
    """A step on batches that are its arguments."""

    def __init__(self, strategy: Any, between: Between) -> None:
        with strategy.scope():
            self.weight = tf.Variable(tf.ones([64, 8]), name="w")
            self.optimizer = keras.optimizers.Adam(0.1)
            self.optimizer.build([self.weight])

        def replica(batch: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(between(tf.matmul(batch, self.weight)) ** 2)
            self.optimizer.apply_gradients([(tape.gradient(loss, self.weight), self.weight)])

        self.step = tf.function(lambda batch: strategy.run(replica, args=(batch,)))
        self.batches = strategy.experimental_distribute_values_from_function(
            lambda context: tf.random.stateless_uniform(
                [2, 64], seed=[1, context.replica_id_in_sync_group]
            )
        )

    def staged(self) -> Stages:
        graph = self.step.get_concrete_function(self.batches).graph
        graph.keeps = self
        return run_stages(graph)


@pytest.fixture
def staggered(monkeypatch: pytest.MonkeyPatch) -> None:
    """All gradients count as large ones, and the machine has one core."""
    preferences = Preferences(min_elements=1, bucket_bytes=1, staggered_bytes=1)
    monkeypatch.setattr(InProcess, "preferences", preferences)
    monkeypatch.setattr(planner, "usable_cores", lambda: 1)


@pytest.mark.usefixtures("staggered")
@pytest.mark.parametrize("between", [unchanged, noisy])
def test_a_replica_begins_when_those_before_it_have_their_gradients(
    strategy_of: Strategies, between: Between
) -> None:
    stages = Step(strategy_of(3), between).staged()
    assert stages.sharding.report("step").at_a_time == 1
    nodes = {node.name: node for node in stages.result.nodes}

    def needed(name: str) -> list[str]:
        return [text.lstrip("^").partition(":")[0] for text in nodes[name].input]

    assert not in_cycles({name: needed(name) for name in nodes})
    (reduction,) = stages.plan.variables[0].reductions
    operands = [value.op for value in reduction.operands]
    behind = [set(reachable([name], needed)) for name in operands]
    assert [[name in own for name in operands] for own in behind] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@pytest.mark.usefixtures("staggered")
@pytest.mark.parametrize("between", [mean_over_replicas, sum_of_shards, looked_up_in_python])
def test_no_replica_is_held_back_that_another_may_wait_for(
    strategy_of: Strategies, between: Between
) -> None:
    stages = Step(strategy_of(2), between).staged()
    (variable,) = stages.plan.variables
    assert stagger(stages.view, variable.reductions, variable.update.devices) is None
    assert stages.plan.at_a_time == 1
    assert stages.sharding.report("step").at_a_time == 0


def test_what_has_no_batch_is_not_held_back(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    made = Step(strategy, unchanged)
    made.batches = tf.ones([2, 64])
    stages = made.staged()
    reductions = stages.plan.variables[0].reductions
    found = stagger(stages.view, reductions, stages.plan.variables[0].update.devices)
    assert found is not None, "one batch for all replicas is the batch of each"
    assert all(found.begins)


@pytest.mark.usefixtures("staggered")
def test_staggered_replicas_train_to_the_same_bits(strategy_of: Strategies) -> None:
    found: list[Any] = []
    for flag in (False, True):
        tf.config.optimizer.set_experimental_options({"weight_update_sharding": flag})
        made = Step(strategy_of(3), unchanged)
        for _ in range(3):
            made.step(made.batches)
        found.append(np.asarray(made.weight))
        names = {
            op.name for op in made.step.get_concrete_function(made.batches).graph.get_operations()
        }
        assert any("staggered" in name for name in names) == flag
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})
    np.testing.assert_array_equal(found[0], found[1])

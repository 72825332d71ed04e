"""The flag off is the graph of today; the flag on with nothing sharded is never silent."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import keras
import pytest
import tensorflow as tf
from absl import logging

import tf_wu_shard
from tests.equivalence.in_process import (
    StrategyOf,
    compiled,
    dense_model,
    examples,
    in_shards,
    step_of,
    turn_on,
)


def _graphs(folder: pathlib.Path, mode: str) -> str:
    written = folder / mode
    script = pathlib.Path(__file__).with_name("traced_step.py")
    subprocess.run(
        [sys.executable, str(script), str(written), mode],
        cwd=script.parents[2],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": str(script.parents[2])},
        check=True,
    )
    return written.read_text()


def test_without_the_flag_the_graphs_are_those_of_a_process_without_the_package(
    tmp_path: pathlib.Path,
) -> None:
    without = _graphs(tmp_path, "without")
    assert without == _graphs(tmp_path, "unset")
    assert without == _graphs(tmp_path, "off")
    # The comparison sees a rewrite.
    assert without != _graphs(tmp_path, "on")


def _fit(model: keras.Model) -> None:
    inputs, targets = examples(8)
    model.fit(inputs, targets, batch_size=4, verbose=0)


def _without_a_strategy(strategy_of: StrategyOf) -> None:
    model = dense_model()
    model.compile(keras.optimizers.Adam(), keras.losses.MeanSquaredError())
    _fit(model)


def _with_one_replica(strategy_of: StrategyOf) -> None:
    _fit(compiled(strategy_of(1)))


def _with_a_plain_loop(strategy_of: StrategyOf) -> None:
    weight = tf.Variable([1.0, 2.0])

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight**2)
        weight.assign_sub(0.1 * tape.gradient(loss, weight))

    step()


def _with_everything_too_small(strategy_of: StrategyOf) -> None:
    turn_on(min_elements=10_000, on_refusal=_options().on_refusal)
    _fit(compiled(strategy_of(2)))


def _with_only_rows_to_update_and_no_slot(strategy_of: StrategyOf) -> None:
    def build() -> keras.Model:
        tokens = keras.layers.Input((4,), dtype="int32")
        return keras.Model(tokens, keras.layers.Embedding(9, 3)(tokens))

    model = compiled(strategy_of(2), build, keras.optimizers.SGD)
    model.fit(tf.zeros([8, 4], tf.int32), tf.zeros([8, 4, 3]), batch_size=4, verbose=0)


def _options() -> tf_wu_shard.ShardingOptions:
    options = tf.config.optimizer.get_experimental_options()["weight_update_sharding"]
    assert isinstance(options, tf_wu_shard.ShardingOptions)
    return options


NOTHING_TO_SHARD: dict[Scenario, str] = {
    _without_a_strategy: "one replica",
    _with_one_replica: "one replica",
    _with_a_plain_loop: "one replica",
    _with_everything_too_small: "below min_elements=10000",
    _with_only_rows_to_update_and_no_slot: "has no slot: all is done",
}

Scenario = Callable[[StrategyOf], None]


@pytest.mark.parametrize("scenario", NOTHING_TO_SHARD, ids=lambda one: one.__name__)
def test_nothing_sharded_is_said_with_its_reason(
    scenario: Scenario, strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda form, *args: said.append(form % args))
    turn_on()
    scenario(strategy_of)
    about_us = [line for line in said if "weight_update_sharding is on" in line]
    assert about_us and NOTHING_TO_SHARD[scenario] in about_us[0]
    assert {report.verdict for report in tf_wu_shard.reports()} == {"nothing sharded"}


@pytest.mark.parametrize("scenario", NOTHING_TO_SHARD, ids=lambda one: one.__name__)
def test_nothing_sharded_raises_when_it_is_asked_to(
    scenario: Scenario, strategy_of: StrategyOf
) -> None:
    turn_on(on_refusal="raise")
    with pytest.raises(tf_wu_shard.NothingShardedError, match=NOTHING_TO_SHARD[scenario]):
        scenario(strategy_of)


def test_a_run_that_shards_says_nothing_and_raises_nothing(
    strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(logging, "warning", lambda form, *args: said.append(form % args))
    turn_on(on_refusal="raise")
    model = compiled(strategy_of(2))
    _fit(model)
    model.evaluate(*examples(8), batch_size=4, verbose=0)
    model.predict(examples(8)[0], batch_size=4, verbose=0)
    assert said == []
    assert [report.verdict for report in tf_wu_shard.reports()] == ["sharded"]


def test_a_function_that_does_not_train_is_no_concern(strategy_of: StrategyOf) -> None:
    turn_on(on_refusal="raise")
    counter = tf.Variable(0, trainable=False)
    tf.function(lambda: counter.assign_add(1))()
    list(tf.data.Dataset.range(3).map(lambda x: x + 1))
    strategy = strategy_of(2)
    total = tf.function(lambda: strategy.reduce("SUM", strategy.run(lambda: tf.ones([])), None))
    assert float(total()) == 2.0 and tf_wu_shard.reports() == ()
    with strategy.scope():
        ahead, behind = tf.Variable(tf.ones([8])), tf.Variable(tf.zeros([8]))

    def follow() -> None:
        behind.assign(0.75 * behind + 0.25 * ahead)

    # A target network that follows another one trains nothing, in whichever context.
    tf.function(follow)()
    tf.function(lambda: strategy.run(follow))()
    assert float(behind[0]) == 0.4375 and tf_wu_shard.reports() == ()
    alone, copy = tf.Variable([2.0, 3.0]), tf.Variable([0.0, 0.0])
    tf.function(lambda: copy.assign(2.0 * alone))()
    assert float(copy[1]) == 6.0 and tf_wu_shard.reports() == ()


def test_the_flag_counts_when_a_function_is_traced(strategy_of: StrategyOf) -> None:
    model = compiled(strategy_of(2), built=True)
    step = step_of(strategy_of(2), model)
    step()
    turn_on()
    step()
    assert tf_wu_shard.reports() == ()
    assert not any(in_shards(variable) for variable in model.optimizer.variables)

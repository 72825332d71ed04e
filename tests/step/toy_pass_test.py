"""A pass that only this folder knows: it changes what is summed, alone and before the sharding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import in_shards
from tests.step.toy_pass import RoundedGradients
from tf_wu_shard import OptionError, ShardingOptions, WuShardError
from tf_wu_shard.storage import own_variables

FLAG = RoundedGradients.flag
SHAPE = (40, 128)
STEPS = 5
RATE, MOMENTUM = 0.5, 0.75
BFLOAT16 = tf.bfloat16.as_numpy_dtype

Strategies = Callable[..., tf.distribute.Strategy]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    tf_wu_shard.register_pass(RoundedGradients())
    tf_wu_shard.clear_reports()
    yield
    tf.config.optimizer.set_experimental_options({FLAG: False, "weight_update_sharding": False})


def inputs(replicas: int) -> np.ndarray:
    """What is the gradient of each replica in each step, [steps, replicas, *SHAPE]."""
    random = np.random.default_rng(4)
    return random.standard_normal((STEPS, replicas, *SHAPE)).astype(np.float32)


class Trained:
    """A weight of which each replica's gradient is its input, after some steps."""

    def __init__(self, strategy: tf.distribute.Strategy, *, rounded: bool, sharded: bool) -> None:
        options: dict[str, Any] = {FLAG: rounded, "weight_update_sharding": False}
        if sharded:
            options["weight_update_sharding"] = ShardingOptions(min_elements=1, on_refusal="raise")
        tf.config.optimizer.set_experimental_options(options)
        self._strategy = strategy
        with strategy.scope():
            self.weight = tf.Variable(tf.zeros(SHAPE), name="weight")
            self._bias = tf.Variable(tf.zeros((24,)), name="bias")
            self.optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
            self.optimizer.build([self.weight, self._bias])
        self._step = tf.function(self._both_replicas, autograph=False)

    def run(self, contributions: np.ndarray) -> None:
        """Takes a step for each input."""
        for own in contributions:
            self._step(self.each(own))

    def each(self, own: np.ndarray) -> Any:
        """Gives each replica what is its own of `own`, [replicas, *SHAPE]."""
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(own[context.replica_id_in_sync_group])
        )

    def _both_replicas(self, values: Any) -> None:
        self._strategy.run(self._replica, (values,))

    def _replica(self, own: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.weight * own) + tf.reduce_sum(self._bias)
        weights = [self.weight, self._bias]
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    @property
    def rounded_away(self) -> list[np.ndarray]:
        """What each replica has kept of its gradients."""
        return [value.numpy() for value in own_variables.beside(self.weight, f"{FLAG}/0").values()]


def by_numpy(
    contributions: np.ndarray, *, rounded: bool, rests: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The weight after training by momentum, and what each replica has kept.

    What is rounded away of a gradient is added to the one that comes `rests` later.
    """
    weight, momentum = np.zeros((2, *SHAPE), np.float32)
    all_kept = [np.zeros_like(contributions[0]) for _ in range(rests)]
    for number, gradients in enumerate(contributions):
        wanted = gradients + all_kept[number % rests]
        sent = wanted.astype(BFLOAT16).astype(np.float32) if rounded else wanted
        all_kept[number % rests] = wanted - sent
        total = sent[0]
        for other in sent[1:]:
            total = total + other
        momentum = np.float32(MOMENTUM) * momentum - total * np.float32(RATE)
        weight = weight + momentum
    return weight, all_kept[0]


@pytest.fixture(params=["mirrored", "tpu"])
def strategy(request: pytest.FixtureRequest, strategy_of: Strategies, emulated: Strategies) -> Any:
    return strategy_of(2) if request.param == "mirrored" else emulated(2)


@pytest.mark.parametrize("sharded", [False, True])
def test_what_is_rounded_away_is_sent_later(strategy: Any, sharded: bool) -> None:
    trained = Trained(strategy, rounded=True, sharded=sharded)
    trained.run(inputs(2))
    weight, kept = by_numpy(inputs(2), rounded=True)
    np.testing.assert_array_equal(trained.weight.numpy(), weight)
    for own, wanted in zip(trained.rounded_away, kept, strict=True):
        np.testing.assert_array_equal(own, wanted)
    assert np.abs(kept).min(axis=(1, 2)).max() > 0
    assert in_shards(trained.optimizer.variables[2]) == sharded
    report = tf_wu_shard.reports()[-1]
    said = "gradients rounded to bfloat16: 2"
    assert {FLAG: said} == report.changes
    verdict = "sharded" if sharded else "nothing sharded"
    assert f"changed by {FLAG} ({said}): {verdict}" in report.headline


def test_another_trace_goes_on_with_what_was_kept(strategy: Any) -> None:
    whole = inputs(2)
    trained = Trained(strategy, rounded=True, sharded=True)
    trained.run(whole[:2])
    trained._step = tf.function(trained._both_replicas, autograph=False)
    trained.run(whole[2:])
    weight, _ = by_numpy(whole, rounded=True)
    np.testing.assert_array_equal(trained.weight.numpy(), weight)


def test_each_of_several_gradients_of_a_weight_has_a_rest_of_its_own(
    strategy_of: Strategies,
) -> None:
    strategy, given = strategy_of(2), inputs(2)[:4]
    trained = Trained(strategy, rounded=True, sharded=True)

    def twice(first: Any, second: Any) -> None:
        trained._both_replicas(first)
        trained._both_replicas(second)

    step = tf.function(twice, autograph=False)
    for pair in (given[:2], given[2:]):
        step(*(trained.each(own) for own in pair))
    # The first and the third input are what the first sum is given, and so on.
    weight, _ = by_numpy(given, rounded=True, rests=2)
    np.testing.assert_array_equal(trained.weight.numpy(), weight)


def test_a_program_that_passes_cannot_reach_ends_the_trace(emulated: Strategies) -> None:
    trained = Trained(emulated(2), rounded=True, sharded=False)

    @tf.function(autograph=False)
    def twice(values: Any) -> None:
        trained._both_replicas(values)
        trained._both_replicas(values)

    with pytest.raises(WuShardError, match=f"as asked for by {FLAG}: .*TPU programs"):
        twice(trained.each(inputs(2)[0]))


@pytest.mark.parametrize("sharded", [False, True])
def test_without_its_flag_it_changes_nothing(strategy: Any, sharded: bool) -> None:
    trained = Trained(strategy, rounded=False, sharded=sharded)
    trained.run(inputs(2))
    weight, _ = by_numpy(inputs(2), rounded=False)
    np.testing.assert_array_equal(trained.weight.numpy(), weight)
    assert not any(np.any(own) for own in trained.rounded_away)


def test_a_wrong_value_of_its_flag_is_refused_when_it_is_set() -> None:
    with pytest.raises(OptionError, match="'rounded_gradients' must be True or False, not 3"):
        tf.config.optimizer.set_experimental_options({FLAG: 3})
    with pytest.raises(OptionError, match="did you mean 'rounded_gradients'"):
        tf.config.optimizer.set_experimental_options({"round_gradients": True})

"""Functions of which the pass has something to say, and those of which it has not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard.config import FLAG, ShardingOptions


@pytest.fixture(autouse=True)
def _flag_on() -> Iterator[None]:
    tf_wu_shard.clear_reports()
    tf.config.optimizer.set_experimental_options({FLAG: ShardingOptions(min_elements=1)})
    yield
    tf.config.optimizer.set_experimental_options({FLAG: False})


class Trained:
    """A weight and its average under two replicas."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        with strategy.scope():
            self.weight = tf.Variable(tf.ones((8, 8)), name="weight")
            self.average = tf.Variable(tf.zeros((8, 8)), trainable=False, name="average")

    def summed(self) -> tf.Tensor:
        """The gradients' sum over the replicas."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(self.weight))
        gradient = tape.gradient(loss, self.weight)
        return tf.distribute.get_replica_context().all_reduce("SUM", gradient)

    def write(self, gradient: tf.Tensor) -> None:
        """The update."""
        self.average.assign(0.9 * self.average + gradient)
        self.weight.assign_sub(0.1 * self.average)

    def run(self, step: Callable[[], Any]) -> None:
        """Traces a step of both replicas and takes it."""
        tf.function(lambda: self._strategy.run(step), autograph=False)()


@pytest.fixture
def trained(strategy_of: Callable[[int], tf.distribute.Strategy]) -> Trained:
    return Trained(strategy_of(2))


def test_an_update_in_a_loop_that_is_handed_the_sum_is_told(trained: Trained) -> None:
    def step() -> None:
        gradient = trained.summed()

        def turn(number: tf.Tensor) -> tuple[tf.Tensor]:
            trained.write(gradient)
            return (number + 1,)

        tf.while_loop(lambda number: number < 2, turn, (0,))

    trained.run(step)
    (report,) = tf_wu_shard.reports()
    (left,) = report.left_alone
    assert left.name == "weight" and "runs inside of While" in left.reason


def test_a_sum_that_is_not_for_what_the_function_writes_is_no_training(trained: Trained) -> None:
    follow = tf.function(
        lambda: trained.average.assign(0.9 * trained.average + 0.1 * trained.weight)
    )

    def evaluate() -> tf.Tensor:
        follow()
        total: tf.Tensor = trained.summed()
        return total

    trained.run(evaluate)
    assert tf_wu_shard.reports() == ()

"""A step may compute gradients with weights that it has just updated, as adversarial training does.

The sums of the two phases wait for each other, and so must never share a bucket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_off, turn_on

ROWS = np.random.default_rng(3).normal(size=(4, 24)).astype(np.float32)


@pytest.fixture
def strategies(
    emulated: Callable[..., tf.distribute.TPUStrategy],
    summing_strategy_of: Callable[[int], tf.distribute.MirroredStrategy],
) -> dict[str, tf.distribute.Strategy]:
    """Four replicas each."""
    return {"mirrored": summing_strategy_of(4), "tpu": emulated(4)}


def trained(strategy: tf.distribute.Strategy) -> list[np.ndarray]:
    """The weights after some steps of two phases; the second reads what the first has written."""
    with strategy.scope():
        one, other = (tf.Variable(tf.ones((24, 64)) * scale) for scale in (0.1, 0.2))
        optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01, momentum=0.9)]
        for optimizer, weight in zip(optimizers, (one, other), strict=True):
            optimizer.build([weight])

    def phase(optimizer: keras.optimizers.Optimizer, trains: tf.Variable) -> None:
        with tf.GradientTape() as tape:
            product = tf.matmul(ROWS, one) * tf.tanh(tf.matmul(ROWS, other))
            loss = tf.reduce_mean((product - 1) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, trains), trains)])

    def replica() -> None:
        phase(optimizers[0], one)
        phase(optimizers[1], other)

    @tf.function
    def step() -> None:
        strategy.run(replica)

    for _ in range(3):
        step()
    return [one.numpy(), other.numpy()]


@pytest.mark.parametrize("name", ["mirrored", "tpu"])
def test_a_step_of_two_phases_is_sharded_and_trains_alike(
    strategies: dict[str, Any], name: str
) -> None:
    turn_off()
    expected = trained(strategies[name])
    tf_wu_shard.clear_reports()
    turn_on(bucket_bytes=1 << 20)
    found = trained(strategies[name])
    turn_off()
    assert [len(report.variables) for report in tf_wu_shard.reports()] == [2]
    for one, two in zip(found, expected, strict=True):
        # Values are of the order of 1, and float32 has 2**-24 of that; three steps, see ROUNDING
        # in tpu_test.py.
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)

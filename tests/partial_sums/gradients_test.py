"""Gradients that are late: none is lost, none is used twice, and in time nothing is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import in_shards
from tests.partial_sums.late_training import RATE, SHAPE, LateTraining, by_numpy, random_lateness
from tf_wu_shard.partial_sums.options import FLAG

Strategies = Callable[..., tf.distribute.Strategy]

STEPS = 100


def inputs(replicas: int, steps: int = STEPS) -> np.ndarray:
    """What is the gradient of each replica in each step."""
    random = np.random.default_rng(5)
    return random.standard_normal((steps, replicas, *SHAPE)).astype(np.float32)


@pytest.mark.parametrize("sharded", [False, True])
def test_random_lateness_is_as_in_numpy(strategy: Any, sharded: bool) -> None:
    gradients, late = random_lateness(2, STEPS)
    trained = LateTraining(strategy, sharded=sharded)
    trained.run(gradients, late)
    weight, waiting = by_numpy(gradients, late)
    np.testing.assert_array_equal(trained.weight.numpy(), weight)
    np.testing.assert_array_equal(trained.waiting, waiting)
    assert in_shards(trained.optimizer.variables[2]) == sharded
    in_time = 100 * np.mean(late == 0)
    said = f"1 gradient may be late; {in_time:.1f} % of them were in time in {STEPS} steps"
    report = tf_wu_shard.reports()[-1]
    assert report.changes == {FLAG: said}
    verdict = "sharded" if sharded else "nothing sharded"
    assert f"changed by {FLAG} ({said}): {verdict}" in report.headline


def test_what_was_applied_and_what_waits_are_all_gradients(strategy_of: Strategies) -> None:
    """To the last bit, as sums of small integers are exact; by plain descent, which only adds."""
    random = np.random.default_rng(7)
    trained = LateTraining(strategy_of(2))
    trained.optimizer.momentum = 0.0
    for _ in range(20):
        steps = int(random.integers(1, 9))
        gradients = random.integers(-99, 99, (steps, 2, *SHAPE)).astype(np.float32)
        late = random.integers(0, 4, (steps, 2)).astype(np.int32)
        before, waiting = trained.weight.numpy(), trained.waiting
        trained.run(gradients, late)
        real = gradients * (late & 2 == 0)[:, :, None, None]
        applied = (before - trained.weight.numpy()) / np.float32(RATE)
        left = trained.waiting.sum(axis=0) - waiting.sum(axis=0)
        np.testing.assert_array_equal(applied + left, real.sum(axis=(0, 1)))


def test_a_stand_in_of_what_is_no_number_is_not_seen(strategy: Any) -> None:
    gradients = inputs(2, steps=6)
    late = np.zeros((6, 2), np.int32)
    late[1, 0] = late[3, 1] = 3
    clean = LateTraining(strategy)
    clean.run(gradients, late)
    gradients[1, 0] = np.nan
    gradients[3, 1] = np.inf
    other = LateTraining(strategy)
    other.run(gradients, late)
    np.testing.assert_array_equal(other.weight.numpy(), clean.weight.numpy())
    assert not np.any(other.waiting)


def test_a_step_that_is_never_late_keeps_every_bit(strategy: Any) -> None:
    """Zeros of either sign and what is no number among the gradients."""
    gradients = inputs(2, steps=4)
    gradients[:, :, 0] = -0.0
    gradients[:, :, 1] = np.inf
    trained = LateTraining(strategy)
    trained.run(gradients, np.zeros((4, 2), np.int32))
    plain = LateTraining(strategy, partial=False)
    plain.run(gradients, None)
    for one, other in zip(trained.state, plain.state, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sharded", [False, True])
def test_there_are_as_many_collectives_as_before(strategy: Any, sharded: bool) -> None:
    found = LateTraining(strategy, sharded=sharded).collectives(says=True)
    wanted = LateTraining(strategy, sharded=sharded, partial=False).collectives(says=False)
    assert found == wanted
    # Replicas of one process exchange shards by no collective.
    assert found or sharded


def test_another_trace_goes_on_with_what_waits(strategy: Any) -> None:
    gradients, late = inputs(2, steps=8), np.ones((8, 2), np.int32)
    late[-1] = 0
    trained = LateTraining(strategy)
    trained.run(gradients[:3], late[:3])
    trained.trace_anew()
    trained.run(gradients[3:], late[3:])
    np.testing.assert_array_equal(trained.weight.numpy(), by_numpy(gradients, late)[0])

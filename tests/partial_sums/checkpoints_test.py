"""Checkpoints hold what is late, of all replicas, and give it to as many as there are then."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.partial_sums import late_table
from tests.partial_sums.late_table import Table, given
from tests.partial_sums.late_training import RATE, SHAPE, LateTraining, random_lateness
from tf_wu_shard.partial_sums.options import FLAG

Strategies = Callable[..., tf.distribute.Strategy]

HELD, HANDS_IN = 1, 2


def _keys(path: str) -> set[str]:
    return {name for name, _ in tf.train.list_variables(path) if "late" in name}


def _late(strategy: Any) -> LateTraining:
    """A training of which all replicas are late for the last step."""
    gradients, late = random_lateness(strategy.num_replicas_in_sync, 12)
    late[-1] = HELD
    trained = LateTraining(strategy)
    trained.run(gradients, late)
    return trained


def _checkpoint(trained: LateTraining) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(weight=trained.weight, optimizer=trained.optimizer)


@pytest.fixture(params=["mirrored to tpu", "tpu to mirrored"])
def strategies(
    request: pytest.FixtureRequest, strategy_of: Strategies, emulated: Strategies
) -> tuple[Any, Any]:
    """Two numbers of replicas."""
    both = strategy_of(2), emulated(4)
    return both if request.param.startswith("mirrored") else both[::-1]


def test_what_is_late_is_added_up_and_given_to_one(
    strategies: tuple[Any, Any], tmp_path: pathlib.Path
) -> None:
    first, after = _late(strategies[0]), strategies[1].num_replicas_in_sync
    waiting = first.waiting
    assert waiting.any(axis=(1, 2)).all()
    path = _checkpoint(first).save(str(tmp_path / "held"))
    np.testing.assert_array_equal(first.waiting, waiting)

    second = LateTraining(strategies[1])
    status = _checkpoint(second).restore(path)
    nothing = np.zeros((1, after, *SHAPE), np.float32)
    second.run(nothing, np.full((1, after), HELD))
    status.assert_consumed()
    np.testing.assert_array_equal(second.waiting[0], waiting.sum(axis=0))
    assert not second.waiting[1:].any()
    # Restored once more, after steps that let something else wait.
    second.run(nothing + 1, np.full((1, after), HELD))
    _checkpoint(second).restore(path)
    np.testing.assert_array_equal(second.waiting[0], waiting.sum(axis=0))
    assert not second.waiting[1:].any()


def test_a_step_that_is_never_late_takes_what_was(
    strategies: tuple[Any, Any], tmp_path: pathlib.Path
) -> None:
    first, after = _late(strategies[0]), strategies[1].num_replicas_in_sync
    path = _checkpoint(first).write(str(tmp_path / "held"))
    second = LateTraining(strategies[1])
    _checkpoint(second).read(path)
    second.optimizer.momentum = 0.0
    weight = second.weight.numpy()
    # Batches that say nothing of lateness.
    second.run(np.zeros((2, after, *SHAPE), np.float32), None)
    moved = second.weight.numpy() - weight
    expected = -np.float32(RATE) * first.waiting.sum(axis=0)
    np.testing.assert_allclose(moved, expected, atol=2e-7 * np.abs(weight).max())
    assert not second.waiting.any()


def test_what_no_step_takes_is_told(
    strategy_of: Strategies, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _checkpoint(_late(strategy_of(2))).write(str(tmp_path / "held"))
    plain = LateTraining(strategy_of(2), partial=False)
    tf.config.optimizer.set_experimental_options({FLAG: True})
    _checkpoint(plain).read(path)
    with caplog.at_level("WARNING"):
        again = _checkpoint(plain).write(str(tmp_path / "again"))
    assert "gradients of weight:0 that are late, and no step of this program takes" in caplog.text
    assert _keys(again) == _keys(path)


def test_where_nothing_is_late_a_checkpoint_is_as_it_was(
    strategy_of: Strategies, tmp_path: pathlib.Path
) -> None:
    gradients, late = random_lateness(2, 4)
    trained = LateTraining(strategy_of(2))
    trained.run(gradients, np.zeros_like(late))
    early = _checkpoint(trained).save(str(tmp_path / "early"))
    assert not _keys(early)
    trained.run(gradients[:1], np.full((1, 2), HELD))
    assert _keys(_checkpoint(trained).save(str(tmp_path / "late")))
    # What waits is of a training that is given up.
    _checkpoint(trained).restore(early).assert_existing_objects_matched()
    assert not trained.waiting.any()


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_rows_that_are_late_come_to_their_tables(
    strategies: tuple[Any, Any], is_elsewhere: bool, tmp_path: pathlib.Path
) -> None:
    """One ground sums tables as a whole, the other lists of rows."""
    tf.config.optimizer.set_experimental_options({FLAG: True})
    before, after = (one.num_replicas_in_sync for one in strategies)
    after = after if is_elsewhere else before
    rows, values, late = given(before)
    late[-1] = HELD

    def trained(number: int) -> tuple[Table, tf.train.Checkpoint]:
        one = Table(strategies[number])
        one.optimizer.momentum = 0.0
        # Where rows are the same in every step, their numbers are not known apart from the step.
        held = {"table": one.table} | ({} if is_elsewhere else {"positions": one.positions})
        return one, tf.train.Checkpoint(**held)

    first, checkpoint = trained(0)
    first.fit(rows, values, late)
    path = checkpoint.save(str(tmp_path / "held"))
    second, checkpoint = trained(1 if is_elsewhere else 0)
    checkpoint.restore(path)
    second.fit(
        rows[:1, [0] * after], values[:1, [0] * after], np.full((1, after), HANDS_IN, np.int32)
    )
    is_real = late & 2 == 0
    table = np.zeros(second.table.shape)
    np.subtract.at(table, rows[is_real], late_table.RATE * values[is_real])
    np.testing.assert_array_equal(second.table.numpy(), table)
    if not is_elsewhere:
        positions = -late_table.RATE * values[is_real].sum(axis=0)
        np.testing.assert_array_equal(second.positions.numpy(), positions)

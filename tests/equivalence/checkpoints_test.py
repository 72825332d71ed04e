"""Checkpoints know nothing of shards: any number of replicas, sharded or not, reads any other's."""

from __future__ import annotations

import pathlib
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.in_process import (
    StrategyOf,
    compiled,
    in_shards,
    state,
    step_of,
    turn_off,
    turn_on,
)
from tests.selection import cases

# Replicas, and whether the update is sharded; 1 is a run with no strategy at all.
GROUNDS = [(1, False), (2, False), (2, True), (8, False), (8, True)]


def _model(strategy_of: StrategyOf, replicas: int, seed: int) -> tuple[Any, keras.Model]:
    keras.utils.set_random_seed(seed)
    strategy = strategy_of(replicas) if replicas > 1 else tf.distribute.get_strategy()
    return strategy, compiled(strategy, optimizer=lambda: keras.optimizers.AdamW(0.01), built=True)


def _trained(
    strategy_of: StrategyOf, replicas: int, sharded: bool, seed: int
) -> tuple[Any, keras.Model]:
    """A model two steps on; from then on its slots are in shards, or not."""
    strategy, model = _model(strategy_of, replicas, seed)
    (turn_on if sharded else turn_off)()
    step = step_of(strategy, model)
    step()
    step()
    turn_off()
    assert (
        sum(in_shards(v) for v in model.optimizer.variables) == 8 * sharded
        if (replicas > 1)
        else not sharded
    )
    return step, model


def _checkpoint(model: keras.Model) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(model=model, optimizer=model.optimizer)


def _bits(model: keras.Model) -> list[bytes]:
    return [np.asarray(variable).tobytes() for variable in state(model)]


@pytest.mark.parametrize(("replicas", "sharded"), cases(GROUNDS, {(1, False), (2, True)}))
def test_four_sharded_replicas_and_any_others_read_each_others_checkpoints(
    summing_strategy_of: StrategyOf, tmp_path: pathlib.Path, replicas: int, sharded: bool
) -> None:
    _, four = _trained(summing_strategy_of, 4, sharded=True, seed=1)
    written = _bits(four)
    path = _checkpoint(four).save(str(tmp_path / "four"))
    _, other = _trained(summing_strategy_of, replicas, sharded, seed=2)
    own = _bits(other)
    assert own[0] != written[0] and own[-1] != written[-1]
    back = _checkpoint(other).save(str(tmp_path / "other"))
    _checkpoint(other).restore(path).assert_consumed()
    assert _bits(other) == written
    _checkpoint(four).restore(back).assert_consumed()
    assert _bits(four) == own
    assert sum(in_shards(v) for v in four.optimizer.variables) == 8


@pytest.mark.parametrize("fresh", [True, False], ids=["before", "after"])
def test_training_goes_on_from_a_checkpoint_as_it_does_unsharded(
    strategy_of: StrategyOf, summing_strategy_of: StrategyOf, tmp_path: pathlib.Path, fresh: bool
) -> None:
    # Restored before the first step, when the slots are whole still, or into their shards.
    _, four = _trained(summing_strategy_of, 4, sharded=True, seed=1)
    path = _checkpoint(four).save(str(tmp_path / "four"))
    ends = []
    for sharded in (False, True):
        (turn_on if sharded else turn_off)()
        if fresh:
            strategy, model = _model(strategy_of, 2, seed=2)
            step = step_of(strategy, model)
        else:
            step, model = _trained(strategy_of, 2, sharded, seed=2)
        _checkpoint(model).restore(path).assert_consumed()
        for _ in range(3):
            step()
        turn_off()
        assert any(in_shards(v) for v in model.optimizer.variables) == sharded
        ends.append(_bits(model))
    assert ends[0] == ends[1]
    assert ends[0] != _bits(four)


def test_a_restored_run_ends_where_one_without_a_break_ends(
    strategy_of: StrategyOf, tmp_path: pathlib.Path
) -> None:
    step, model = _trained(strategy_of, 2, sharded=True, seed=1)
    manager = tf.train.CheckpointManager(_checkpoint(model), str(tmp_path), max_to_keep=2)
    manager.save()
    for _ in range(3):
        step()
    without_a_break = _bits(model)
    _checkpoint(model).restore(manager.latest_checkpoint).assert_consumed()
    for _ in range(3):
        step()
    assert _bits(model) == without_a_break

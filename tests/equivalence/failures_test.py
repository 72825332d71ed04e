"""A pass that breaks, at whichever stage, leaves the function as it was traced and says so."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import (
    StrategyOf,
    compiled,
    examples,
    in_shards,
    state,
    step_of,
    turn_off,
    turn_on,
)
from tf_wu_shard import graph_pass
from tf_wu_shard.step import swap
from tf_wu_shard.storage import pending_slots
from tf_wu_shard.weight_update import redirection, sharding, stages

STAGES = (
    *((graph_pass, "capture"), (stages, "analyze"), (sharding, "make_plan")),
    *((sharding, "rewrite"), (sharding, "verify"), (sharding, "summarize")),
    *((swap, "rebuild"), (pending_slots, "prepare"), (pending_slots, "commit_all")),
)


def _trained(strategy: tf.distribute.Strategy) -> list[Any]:
    keras.utils.set_random_seed(7)
    model = compiled(strategy)
    inputs, targets = examples(8)
    model.fit(inputs, targets, batch_size=4, shuffle=False, verbose=0)
    return state(model)


def _bits(variables: list[Any]) -> list[bytes]:
    return [variable.numpy().tobytes() for variable in variables]


@pytest.fixture(scope="module")
def unsharded(strategy_of: StrategyOf) -> list[bytes]:
    """What training gives without the flag."""
    turn_off()
    return _bits(_trained(strategy_of(2)))


@pytest.mark.parametrize(("module", "stage"), STAGES, ids=lambda one: getattr(one, "__name__", one))
def test_a_stage_that_fails_leaves_the_function_as_it_was(
    module: Any,
    stage: str,
    strategy_of: StrategyOf,
    unsharded: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*arguments: Any, **named: Any) -> None:
        raise ZeroDivisionError(f"{stage} is broken")

    monkeypatch.setattr(module, stage, broken)
    turn_on()
    variables = _trained(strategy_of(2))
    assert _bits(variables) == unsharded
    assert not any(in_shards(variable) for variable in variables[4:])
    (report,) = tf_wu_shard.reports()
    assert report.verdict == "nothing sharded"
    assert f"{stage} is broken" in report.left_alone[0].reason


def test_a_failure_half_way_through_the_slots_shards_none(
    strategy_of: StrategyOf, unsharded: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    right, calls = pending_slots.PendingSlot.commit, []

    def third_time_unlucky(slot: pending_slots.PendingSlot) -> Any:
        calls.append(slot)
        if len(calls) == 3:
            raise MemoryError("no room for another shard")
        return right(slot)

    monkeypatch.setattr(pending_slots.PendingSlot, "commit", third_time_unlucky)
    turn_on()
    variables = _trained(strategy_of(2))
    assert len(calls) == 3
    assert _bits(variables) == unsharded
    assert not any(in_shards(variable) for variable in variables[4:])
    assert "no room for another shard" in tf_wu_shard.reports()[-1].left_alone[0].reason


def test_a_function_that_cannot_be_led_onto_the_shards_is_refused(
    strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> None:
        raise ZeroDivisionError("no way there")

    strategy = strategy_of(2)
    model = compiled(strategy, built=True)
    turn_on()
    step_of(strategy, model)()
    slot = next(variable for variable in model.optimizer.variables if in_shards(variable))
    monkeypatch.setattr(redirection, "redirected", broken)
    # As traced it would read storage that is gone, so leaving it as it was is no choice.
    with pytest.raises(tf_wu_shard.StorageError, match="no way there"):
        tf.function(lambda: tf.reduce_sum(slot.value))()
    monkeypatch.undo()
    assert float(tf.function(lambda: tf.reduce_sum(slot.value))()) == float(tf.reduce_sum(slot))

"""Branches around all replicas, as the Keras before 3 has them, are the same in shards."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence.own_process import answer_of
from tests.equivalence.tf_keras_scenarios import SCENARIOS

# Matrices in shards, two or three slots of each weight, and how many of the reports say so.
IN_SHARDS = {
    "overflowing": (4, 2),
    "overflowing_fused": (4, 2),
    "overflowing_overwritten": (6, 2),
    "averaged_by_a_function": (2, 2),
    "pulled_back": (6, 2),
    "applied_in_a_branch": (2, 2),
    "overflowing_beside_rows": (6, 2),
    "overflowing_beside_fused_rows": (3, 2),
    "overflowing_rows_of_ftrl": (6, 2),
    "overflowing_rows_of_legacy_adagrad": (3, 2),
    "applied_beside_an_effect": (2, 2),
    "applied_after_an_effect": (2, 1),
}


@functools.cache
def found() -> dict[str, Any]:
    """What came of every scenario under a MirroredStrategy; TPUs refuse to scale losses."""
    module = "tf_keras_scenarios@mirrored"
    results: dict[str, Any] = answer_of("scenarios_run", module, *IN_SHARDS)
    return results


@pytest.mark.parametrize("name", IN_SHARDS)
def test_nothing_differs_by_a_bit(name: str) -> None:
    assert found()[name]["apart"] == []


@pytest.mark.parametrize("name", IN_SHARDS)
def test_what_can_is_sharded_every_time_it_is_traced(name: str) -> None:
    outcome, (matrices, sharded) = found()[name], IN_SHARDS[name]
    assert outcome["matrices_in_shards"] == matrices, outcome["reports"]
    assert sum(": sharded " in report for report in outcome["reports"]) == sharded
    # No branch speaks for itself: the step that takes it does.
    assert not any("cond" in report.partition(":")[0] for report in outcome["reports"])


def test_what_stays_a_branch_says_why() -> None:
    *_, report = found()["applied_after_an_effect"]["reports"]
    assert "is not to run where its branch is not taken" in report


@pytest.mark.slow
@pytest.mark.parametrize("name", ["overflowing", "overflowing_overwritten"])
def test_a_branch_knows_what_one_device_sums_outside(name: str) -> None:
    outcome = answer_of("scenarios_run", "tf_keras_scenarios@one_device", name)[name]
    assert outcome["apart"] == []
    assert outcome["matrices_in_shards"] == IN_SHARDS[name][0], outcome["reports"]


@pytest.mark.slow
def test_rows_that_a_branch_updates_are_sharded_by_whatever_optimizer() -> None:
    names = [name for name in SCENARIOS if name.startswith("overflowing_rows")]
    outcomes = answer_of("scenarios_run", "tf_keras_scenarios@mirrored", *names)
    assert len(outcomes) > 10
    for name, outcome in outcomes.items():
        # The norm of a gradient is added up shard by shard.
        assert outcome["by"] <= (1e-6 if "clipped" in name else 0.0), name
        # Of the table, the two kernels and no bias: all slots.
        assert outcome["matrices_in_shards"] % 3 == 0 < outcome["matrices_in_shards"], name

"""Branches around all replicas, as the Keras before 3 has them, are the same in shards."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence.own_process import answer_of

# Matrices in shards, two or three slots of each weight, and how many of the reports say so.
IN_SHARDS = {
    "overflowing": (4, 2),
    "overflowing_fused": (4, 2),
    "pulled_back": (6, 2),
    "applied_in_a_branch": (2, 2),
    "overflowing_beside_rows": (4, 2),
    "overflowing_beside_fused_rows": (2, 2),
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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("applied_after_an_effect", "is not to run where its branch is not taken"),
        ("overflowing_beside_rows", "Unique is not to run where its branch is not taken"),
        ("overflowing_beside_fused_rows", "is not done with the values of variables"),
    ],
)
def test_what_stays_a_branch_says_why(name: str, reason: str) -> None:
    *_, report = found()[name]["reports"]
    assert reason in report

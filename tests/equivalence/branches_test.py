"""Gradients that are reduced before a branch and applied in it are sharded, and no bit differs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.equivalence.branch_scenarios import SCENARIOS
from tests.equivalence.own_process import answer_of
from tests.selection import cases, selected

# Variables that live in shards after each scenario: two kernels, Adam's two slots of each, and the
# sums of gradients of each.
IN_SHARDS = {
    **dict.fromkeys(SCENARIOS, 6),
    "accumulated": 8,
    "added_otherwise": 4,
    # With one slot of each.
    "fused": 4,
    **dict.fromkeys(("own_choice", "disagreeing", "without_rule", "divided"), 0),
}

REASONS = {
    "own_choice": "each replica computes it from an input of its own",
    "disagreeing": "each replica",
    "without_rule": "Cumsum is not to run where its branch is not taken",
    "divided": "FloorDiv of whole numbers may fail where it is not to run",
}

# Those that are left alone, and a way each of those that are not.
QUICK = (*REASONS, "finite", "accumulated", "nested")


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of every scenario that is asked about, all run by one process."""
    results: dict[str, Any] = answer_of(
        "scenarios_run", "branch_scenarios", *selected(request, "name")
    )
    return results


@pytest.mark.parametrize("name", cases(SCENARIOS, QUICK))
def test_nothing_differs_by_a_bit(found: dict[str, Any], name: str) -> None:
    assert found[name]["apart"] == []


@pytest.mark.parametrize("name", cases(SCENARIOS, QUICK))
def test_what_can_lives_in_shards(found: dict[str, Any], name: str) -> None:
    reports = found[name]["reports"]
    assert found[name]["in_shards"] == IN_SHARDS[name], reports
    assert not any("failed" in text for text in reports)


@pytest.mark.parametrize("name", REASONS)
def test_what_is_left_alone_says_why(found: dict[str, Any], name: str) -> None:
    assert all(REASONS[name] in text for text in found[name]["reports"]), found[name]["reports"]


@pytest.mark.parametrize("name", ["finite"])
def test_whether_gradients_are_finite_costs_one_all_reduce(
    found: dict[str, Any], name: str
) -> None:
    first = found[name]["reports"][0]
    assert "emitted 2 all_gather, 1 all_reduce, 2 reduce_scatter" in first, first

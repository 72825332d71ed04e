"""Weights in shards serve whatever a program or its host does to them, and not a bit differs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.equivalence.in_shards_scenarios import SCENARIOS
from tests.equivalence.own_process import answer_of
from tests.selection import cases, selected

# One way each into shards and past them.
QUICK = (
    *("decayed", "branches_in_a_loop", "calls_after_the_update", "scattered"),
    *("assigned_in_branches", "called_step", "component"),
)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of every scenario that is asked about, all run by one process."""
    results: dict[str, Any] = answer_of(
        "scenarios_run", "in_shards_scenarios", *selected(request, "name")
    )
    return results


@pytest.mark.parametrize("name", cases(SCENARIOS, QUICK))
def test_nothing_differs_by_a_bit(found: dict[str, Any], name: str) -> None:
    assert found[name]["apart"] == []


@pytest.mark.parametrize("name", cases(SCENARIOS, QUICK))
def test_the_weights_stay_in_shards(found: dict[str, Any], name: str) -> None:
    reports = found[name]["reports"]
    # Two kernels, and two slots of each.
    assert found[name]["in_shards"] == 6, reports
    assert not any("failed" in text for text in reports)

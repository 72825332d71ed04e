"""Updates in branches, loops and called functions are sharded, and not a bit differs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.equivalence.nested_scenarios import SCENARIOS
from tests.equivalence.own_process import answer_of
from tests.selection import cases, selected

# Variables that live in shards after each scenario. A net has two kernels, Adam two slots of each.
IN_SHARDS = {
    **dict.fromkeys(SCENARIOS, 6),
    # The weights are also set outside of the branch that trains them; their slots are in shards.
    "averaged": 4,
    "adversarial": 12,
    "handed_a_slot": 4,
    "own_factor": 0,
    # The host reads one of the weights.
    "on_the_host": 5,
}

# Each kind of call, and what only one of them does.
QUICK = (
    *("overflowing", "looped", "adversarial", "handed_a_slot", "own_factor"),
    *("on_the_host", "fitted"),
)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of every scenario that is asked about, all run by one process."""
    results: dict[str, Any] = answer_of(
        "scenarios_run", "nested_scenarios", *selected(request, "name")
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


@pytest.mark.parametrize("name", ["overflowing"])
def test_an_update_in_a_branch_is_told_of_once(found: dict[str, Any], name: str) -> None:
    for text in found[name]["reports"]:
        assert "runs inside of" not in text


@pytest.mark.parametrize("name", ["own_factor"])
def test_what_each_replica_carries_of_its_own_is_why_an_update_is_left_alone(
    found: dict[str, Any], name: str
) -> None:
    reports = found[name]["reports"]
    assert any("another value on each replica" in text for text in reports)

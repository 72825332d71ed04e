"""Weights in shards serve whatever a program or its host does to them, and not a bit differs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.equivalence.in_shards_scenarios import SCENARIOS
from tests.equivalence.own_process import answer_of


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What came of every scenario, all run by one process."""
    results: dict[str, Any] = answer_of("scenarios_run", "in_shards_scenarios")
    return results


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_differs_by_a_bit(found: dict[str, Any], name: str) -> None:
    assert found[name]["apart"] == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_weights_stay_in_shards(found: dict[str, Any], name: str) -> None:
    reports = found[name]["reports"]
    # Two kernels, and two slots of each.
    assert found[name]["in_shards"] == 6, reports
    assert not any("failed" in text for text in reports)

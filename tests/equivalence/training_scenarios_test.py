"""However people train, weights and slots are what they are unsharded, on every ground."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence.own_process import answer_of
from tests.equivalence.training_scenarios import SCENARIOS

GROUNDS = ("tpu", "mirrored", "collective")

# Kernels in shards after each scenario, each with this many slots; on TPUs the kernels are, too.
KERNELS_AND_SLOTS = {
    **dict.fromkeys(SCENARIOS, (2, 4)),
    "generating": (4, 6),
    # Momentum, velocity and average.
    "overwritten_by_tf_keras": (2, 6),
    "layers_with_rates_of_their_own": (2, 3),
    # Of three optimizers: two, one and one slots.
    "swapped": (2, 8),
    # One layer frozen, none, one.
    "thawed": (2, 8),
}


@functools.cache
def found(ground: str) -> dict[str, Any]:
    """What came of every scenario, all run by one process."""
    results: dict[str, Any] = answer_of("scenarios_run", f"training_scenarios@{ground}")
    return results


CASES = [
    pytest.param(ground, name, marks=pytest.mark.slow if ground == "collective" else ())
    for ground in GROUNDS
    for name in SCENARIOS
]


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_nothing_differs_by_a_bit(ground: str, name: str) -> None:
    assert found(ground)[name]["apart"] == []


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_all_matrices_are_sharded(ground: str, name: str) -> None:
    kernels, slots = KERNELS_AND_SLOTS[name]
    outcome = found(ground)[name]
    assert outcome["matrices_in_shards"] == slots + (kernels if ground == "tpu" else 0)
    assert not any("failed" in text for text in outcome["reports"])

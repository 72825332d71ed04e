"""However people train, weights and slots are what they are unsharded, on every ground."""

from __future__ import annotations

import pytest

from tests.equivalence.own_process import OnGround, scenarios_of
from tests.equivalence.training_scenarios import SCENARIOS
from tests.selection import cases

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


# Graphs of TPUs take longest to trace, and collectives are tried in real workers, too.
QUICK = {*(("mirrored", name) for name in SCENARIOS), ("tpu", "swapped")}

CASES = cases(((ground, name) for ground in GROUNDS for name in SCENARIOS), QUICK)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> OnGround:
    return scenarios_of(request, "training_scenarios")


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_nothing_differs_by_a_bit(found: OnGround, ground: str, name: str) -> None:
    assert found(ground)[name]["apart"] == []


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_all_matrices_are_sharded(found: OnGround, ground: str, name: str) -> None:
    kernels, slots = KERNELS_AND_SLOTS[name]
    outcome = found(ground)[name]
    assert outcome["matrices_in_shards"] == slots + (kernels if ground == "tpu" else 0)
    assert not any("failed" in text for text in outcome["reports"])

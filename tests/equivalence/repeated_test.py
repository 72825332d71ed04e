"""Variables that a step updates several times are sharded, and are what they are unsharded."""

from __future__ import annotations

import pytest

from tests.equivalence.own_process import OnGround, scenarios_of
from tests.equivalence.repeated_scenarios import SCENARIOS
from tests.selection import cases

GROUNDS = ("tpu", "mirrored", "collective")

# Whose norms are taken over shards: sums in another order, rounded otherwise.
NORMED = {"normed_three_times", "two_heads"}
# Of float32 numbers of about 1, after three steps: some units in the last place.
ROUNDING = 2e-6

# Kernels in shards after each scenario, with all their slots; on TPUs the kernels are, too. The
# slots of Muon have owners, and are no shards, where replicas share a process.
KERNELS_AND_SLOTS = {
    **dict.fromkeys(SCENARIOS, (2, 4)),
    "wgan_gp": (4, 6),
    "wgan_clipped": (4, 8),
    "each_then_both": (4, 8),
    "twice_by_sgd": (2, 0),
    "averaged": (2, 6),
    "two_optimizers": (2, 8),
    "some_more_often": (2, 6),
    "looked_up_by_rmsprop": (2, 2),
    "two_heads": (4, 6),
    "reptile": (2, 2),
    "muon": (2, 2),
}

QUICK = {
    *(("mirrored", name) for name in ("wgan_gp", "muon", "some_more_often", "each_then_both")),
    *(("tpu", name) for name in ("some_more_often", "normalized_before_use")),
}

CASES = cases(((ground, name) for ground in GROUNDS for name in SCENARIOS), QUICK)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> OnGround:
    return scenarios_of(request, "repeated_scenarios")


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_a_step_of_several_updates_leaves_what_it_leaves_unsharded(
    found: OnGround, ground: str, name: str
) -> None:
    outcome = found(ground)[name]
    assert outcome["by"] <= ROUNDING if name in NORMED else outcome["apart"] == []


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_all_matrices_updated_several_times_are_sharded(
    found: OnGround, ground: str, name: str
) -> None:
    kernels, slots = KERNELS_AND_SLOTS[name]
    outcome = found(ground)[name]
    assert outcome["matrices_in_shards"] == slots + (kernels if ground == "tpu" else 0)
    assert not any("failed" in text for text in outcome["reports"])

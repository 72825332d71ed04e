"""A slot in shards shows the step that updates it what it held at each moment, to the last bit."""

from __future__ import annotations

import itertools

import pytest

from tests.equivalence.own_process import OnGround, scenarios_of
from tests.equivalence.slot_moments_scenarios import SCENARIOS
from tests.selection import cases

GROUNDS = ("mirrored", "collective", "tpu")

QUICK = (
    *("read_twice", "called_twice", "in_a_branch", "updated_in_a_branch", "updated_in_a_loop"),
    *("written_on_host", "called_around_a_call", "updated_or_reset", "over_a_dataset"),
)

# TensorFlow itself places no function of the host that writes a variable of TPUs. Functions of
# datasets run programs of emulated TPUs, which no real one does.
UNKNOWN = {("tpu", "written_by_a_call"), ("tpu", "over_a_dataset")}

CASES = cases(
    (case for case in itertools.product(GROUNDS, SCENARIOS) if case not in UNKNOWN),
    {("mirrored", name) for name in QUICK},
)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> OnGround:
    return scenarios_of(request, "slot_moments_scenarios")


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_nothing_differs_by_a_bit(found: OnGround, ground: str, name: str) -> None:
    assert found(ground)[name]["apart"] == []


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_the_slot_stays_in_shards(found: OnGround, ground: str, name: str) -> None:
    outcome = found(ground)[name]
    # Between steps on TPUs the weight does, too.
    assert outcome["matrices_in_shards"] == (2 if ground == "tpu" else 1), outcome["reports"]
    assert not any("failed" in text for text in outcome["reports"])

"""Whatever a program does between its updates, not a bit of what it leaves or sees differs."""

from __future__ import annotations

import itertools

import pytest

from tests.equivalence.found_programs import FOUND
from tests.equivalence.own_process import OnGround, scenarios_of
from tests.equivalence.program_scenarios import PROGRAMS
from tests.selection import cases

GROUNDS = ("mirrored", "collective", "tpu")

# In one order in every process.
WENT_WRONG = [
    ("collective", "written_in_a_call_and_looked_at"),
    ("tpu", "looked_at_and_written_in_a_branch"),
    *(("mirrored", n) for n in FOUND),
]

QUICK = [*WENT_WRONG, *(("mirrored", f"seed_{seed}") for seed in (1, 2, 3))]

# No dataset runs a TPU's program. XLA compiles all of that; what stands for it here it does not.
UNKNOWN = {
    ("tpu", name)
    for name, program in PROGRAMS.items()
    if program.compiles or any(step.wrap == "dataset" for step in program.steps)
}

CASES = cases((c for c in itertools.product(GROUNDS, PROGRAMS) if c not in UNKNOWN), QUICK)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> OnGround:
    return scenarios_of(request, "program_scenarios")


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_nothing_differs_by_a_bit(found: OnGround, ground: str, name: str) -> None:
    outcome = found(ground)[name]
    assert outcome["apart"] == []
    # A refusal is an answer, a failure of the pass is not.
    assert not any("pass failed" in text for text in outcome["reports"])


@pytest.mark.parametrize(("ground", "name"), WENT_WRONG)
def test_what_went_wrong_once_is_sharded(found: OnGround, ground: str, name: str) -> None:
    assert any("sharded 100 %" in text for text in found(ground)[name]["reports"])

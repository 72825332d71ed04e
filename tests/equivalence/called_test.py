"""Gradients that a function of the step's applies are the same in shards, XLA's bits among them."""

from __future__ import annotations

import pytest

from tests.equivalence.called_scenarios import SCENARIOS
from tests.equivalence.own_process import OnGround, scenarios_of
from tests.selection import cases

GROUNDS = ("mirrored", "collective")

# Matrices in shards. Adafactor takes means in its function, which is left to XLA whole.
MATRICES = {
    "called": 1,
    "called_in_between": 1,
    "called_compiled": 1,
    "called_compiled_in_part": 1,
    "called_in_a_branch": 1,
    "called_compiled_in_a_branch": 1,
    "adam_compiled": 6,
    "adam_scaled_compiled": 4,
    "adam_averaged_compiled": 6,
    "rmsprop_compiled": 2,
    "ftrl_compiled": 4,
    "adafactor_compiled": 0,
}

COMPILED = [name for name in SCENARIOS if "compiled" in name and MATRICES[name]]

QUICK = (
    *("called_in_between", "called_compiled_in_part", "called_in_a_branch"),
    *("adam_scaled_compiled", "adafactor_compiled"),
)

CASES = cases(
    ((ground, name) for ground in GROUNDS for name in SCENARIOS),
    {("mirrored", name) for name in QUICK},
)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> OnGround:
    return scenarios_of(request, "called_scenarios")


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_nothing_differs_by_a_bit(found: OnGround, ground: str, name: str) -> None:
    assert found(ground)[name]["apart"] == []


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_what_can_is_in_shards(found: OnGround, ground: str, name: str) -> None:
    outcome = found(ground)[name]
    assert outcome["matrices_in_shards"] == MATRICES[name], outcome["reports"]


@pytest.mark.parametrize(("ground", "name"), CASES)
def test_what_was_compiled_is_compiled(found: OnGround, ground: str, name: str) -> None:
    text = "\n".join(found(ground)[name]["reports"])
    assert ("compiled by XLA, as asked for" in text) == (name in COMPILED)


def test_what_stays_a_call_says_why(found: OnGround) -> None:
    *_, report = found("mirrored")["adafactor_compiled"]["reports"]
    assert "which XLA compiles as a whole, with Mean in it" in report
    assert "lifted by jit_compile=False" in report


def test_a_branch_is_told_about_by_whoever_takes_it(found: OnGround) -> None:
    text = "\n".join(found("mirrored")["adam_scaled_compiled"]["reports"])
    assert "runs inside of" not in text and "nothing sharded" not in text

"""Delays that are planned, and what is made of the times of trainings."""

from __future__ import annotations

import math

import pytest

from tf_wu_shard.bench.imbalance.delays import Kind, delays
from tf_wu_shard.bench.imbalance.page import page
from tf_wu_shard.bench.imbalance.result import (
    SYNCHRONOUS,
    ImbalanceResult,
    Step,
    Training,
    waits_of,
)
from tf_wu_shard.report.html import render


@pytest.mark.parametrize(
    ("kind", "of_a_step"), [("one", 0.3), ("ramp", 0.6), ("none", 1.2), ("text", 0.0)]
)
def test_delays_of_a_step_sum_up(kind: Kind, of_a_step: float) -> None:
    found = delays(kind, workers=4, steps=50, seconds=0.3, seed=1)
    assert [math.isclose(sum(step), of_a_step, abs_tol=1e-9) for step in found] == [True] * 50
    if kind in ("one", "ramp"):
        assert {max(range(4), key=step.__getitem__) for step in found} == {0, 1, 2, 3}


def test_nobody_waits_in_the_step_of_who_comes_last() -> None:
    # Both take 2 s from being ready; one is ready a second later.
    early, late = Step(0, 0, 0, 3), Step(0, 1, 0, 3)
    found = waits_of([[early], [late]])
    assert [worker[0].handed_in for worker in found] == [2, 3]


def _training(mode: str, seed: int, step_s: float, score: float) -> Training:
    steps = tuple(
        Step(n * step_s, n * step_s, (n + 0.5) * step_s, (n + 1) * step_s) for n in range(4)
    )
    return Training(mode, 0.0, seed, (steps, steps), (3.0, 2.0, 1.0, 0.5), 0.75, 2, 0, score)


def _result() -> ImbalanceResult:
    trainings = [
        *(_training(SYNCHRONOUS, seed, 0.2, 90.0) for seed in range(3)),
        *(_training("majority", seed, 0.1, 88.0 + seed) for seed in range(3)),
    ]
    return ImbalanceResult("one", 80, "digits", 2, "accuracy, %", tuple(trainings))


def test_trainings_are_compared_seed_by_seed() -> None:
    result = _result()
    assert result.gain("majority", 0.0) == pytest.approx(2.0)
    assert result.difference("majority", 0.0) == pytest.approx((-1.0, 1 / math.sqrt(3)))
    words = " ".join(str(result).split())
    assert "majority 0 100.0 2.00 75% 2 89.00 (-1.00, standard error 0.58)" in words


def test_the_page_draws_who_did_what_and_the_losses() -> None:
    text = render(page(_result()))
    assert text.count("<rect ") == 2 * (4 * 2 + 8 * 2) - 2 * 8
    assert text.count("<polyline") == 2
    assert "worker 1" in text

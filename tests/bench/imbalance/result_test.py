"""What is made of the times of trainings, seed by seed."""

from __future__ import annotations

import math

import pytest

from tests.bench.imbalance.samples import result
from tf_wu_shard.bench.imbalance.result import Step, waits_of


def test_nobody_waits_in_the_step_of_who_comes_last() -> None:
    # Both take 2 s from being ready; one is ready a second later.
    early, late = Step(0, 0, 0, 3), Step(0, 1, 0, 3)
    found = waits_of([[early], [late]])
    assert [worker[0].handed_in for worker in found] == [2, 3]


def test_trainings_are_compared_seed_by_seed() -> None:
    measured = result()
    assert measured.gain("majority", 0.0) == pytest.approx(2.0)
    assert measured.difference("majority", 0.0) == pytest.approx((-1.0, 1 / math.sqrt(3)))
    words = " ".join(str(measured).split())
    assert "majority 0 100.0 2.00 75% 2 89.00 (-1.00, standard error 0.58)" in words

"""Delays are planned: one worker late, a ramp that shifts, the same for all, or none at all."""

from __future__ import annotations

import math

import pytest

from tf_wu_shard.bench.imbalance.delays import KINDS, Kind, delays


@pytest.mark.parametrize(
    ("kind", "of_a_step"), [("one", 0.3), ("ramp", 0.6), ("none", 1.2), ("text", 0.0)]
)
def test_delays_of_a_step_sum_up(kind: Kind, of_a_step: float) -> None:
    found = delays(kind, workers=4, steps=50, seconds=0.3, seed=1)
    # Sums of floats, which are off by some 1e-16.
    assert [math.isclose(sum(step), of_a_step, abs_tol=1e-9) for step in found] == [True] * 50
    if kind in ("one", "ramp"):
        assert {max(range(4), key=step.__getitem__) for step in found} == {0, 1, 2, 3}


def test_one_worker_takes_all_of_the_delay_and_no_other_takes_any() -> None:
    found = delays("one", workers=3, steps=40, seconds=2.0, seed=1)
    assert all(sorted(step) == [0.0, 0.0, 2.0] for step in found)


def test_who_is_late_is_drawn_by_the_seed() -> None:
    first, again, other = (delays("one", 4, 40, 2.0, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_ramp_goes_from_none_to_all_of_the_delay_and_shifts_by_a_worker_a_step() -> None:
    assert delays("ramp", workers=3, steps=4, seconds=2.0, seed=0) == [
        [0.0, 1.0, 2.0],
        [1.0, 2.0, 0.0],
        [2.0, 0.0, 1.0],
        [0.0, 1.0, 2.0],
    ]


def test_where_nobody_is_later_than_another_all_take_the_delay_or_none() -> None:
    assert delays("none", workers=2, steps=2, seconds=2.0, seed=0) == [[2.0, 2.0], [2.0, 2.0]]
    assert delays("text", workers=2, steps=2, seconds=2.0, seed=0) == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(("kind", "seconds"), [("one", 2.0), ("ramp", 0.0), ("none", 2.0)])
def test_one_worker_alone_has_a_delay_too(kind: Kind, seconds: float) -> None:
    assert delays(kind, workers=1, steps=2, seconds=2.0, seed=0) == [[seconds], [seconds]]


@pytest.mark.parametrize("kind", KINDS)
def test_no_steps_have_no_delays(kind: Kind) -> None:
    assert delays(kind, workers=2, steps=0, seconds=2.0, seed=0) == []

"""Claims about demo/agreement.py: rounding passes, a wrong update does not."""

import dataclasses

import numpy as np
import pytest

from tf_wu_shard.demo.agreement import FACTOR, FLOOR, compare, relative_difference
from tf_wu_shard.demo.runs import DemoError, Mode, Run, Tensors

_RUN = Run(
    mode=Mode.UNSHARDED,
    parameters=4,
    losses=(2.0, 1.0),
    step_s=(0.1,),
    first_step_s=1.0,
    held_out=0.5,
    peak_bytes=1,
    sharding=None,
)
_KERNEL = np.array([1.0, -2.0, 4.0], np.float32)


def _moved(by: float) -> tuple[Run, Tensors]:
    """A run whose every tensor and loss differs by `by`, relative to the largest element."""
    slots = {"m": _KERNEL + np.float32(4 * by)}
    losses = tuple(loss + 2 * by for loss in _RUN.losses)
    weights = {"kernel": _KERNEL + np.float32(4 * by), "bias": np.zeros(2, np.float32)}
    return dataclasses.replace(_RUN, losses=losses), Tensors(weights, slots)


def test_a_difference_is_relative_to_the_largest_element() -> None:
    other = _KERNEL + np.array([0, 0.5, 0], np.float32)
    assert relative_difference(_KERNEL, other) == 0.125


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_differs_without_limit(bad: float) -> None:
    broken = np.array([1.0, bad, 4.0], np.float32)
    assert relative_difference(_KERNEL, broken) == np.inf
    assert relative_difference(broken, _KERNEL) == np.inf


def test_equal_nans_and_equal_integers_do_not_differ() -> None:
    nans = np.array([1.0, np.nan], np.float32)
    assert relative_difference(nans, nans.copy()) == 0.0
    assert relative_difference(np.array(20), np.array(20)) == 0.0


def test_anything_differs_from_all_zeros_without_limit() -> None:
    assert relative_difference(np.zeros(2), np.array([0, 1e-30])) == np.inf


def test_a_run_may_differ_by_four_times_what_the_baseline_moves() -> None:
    within = compare(_moved(0), _moved(1e-3), _moved(0.99 * FACTOR * 1e-3))
    beyond = compare(_moved(0), _moved(1e-3), _moved(1.01 * FACTOR * 1e-3))
    assert [one.quantity for one in within] == ["losses", "weights", "slots"]
    assert all(one.holds for one in within)
    assert not any(one.holds for one in beyond)
    assert [one.worst for one in beyond] == ["losses", "kernel", "m"]


def test_the_floor_holds_where_the_baseline_does_not_move() -> None:
    assert all(one.holds for one in compare(_moved(0), _moved(0), _moved(FLOOR / 2)))
    assert not any(one.holds for one in compare(_moved(0), _moved(0), _moved(FLOOR * 2)))


def test_a_baseline_that_diverges_allows_no_more_than_the_floor() -> None:
    for one in compare(_moved(0), _moved(np.nan), _moved(1e-3)):
        assert one.limit == FLOOR
        assert not one.holds


def test_runs_with_other_tensors_cannot_be_compared() -> None:
    run, tensors = _moved(0)
    fewer = Tensors({"kernel": _KERNEL}, tensors.slots)
    with pytest.raises(DemoError, match=r"do not have the same weights.*bias"):
        compare((run, tensors), (run, tensors), (run, fewer))


def test_runs_without_tensors_cannot_be_compared() -> None:
    run, tensors = _moved(0)
    none = Tensors(tensors.weights, {})
    with pytest.raises(DemoError, match="the same slots: none at all"):
        compare((run, none), (run, none), (run, none))

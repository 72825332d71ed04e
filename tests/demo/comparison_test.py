"""Claims about demo/comparison.py: what counts as a problem, and that real runs can be compared."""

import dataclasses
import pathlib

import numpy as np

from tests.demo.samples import BASELINE, SHARDING, comparison
from tf_wu_shard.demo import comparison as comparison_module
from tf_wu_shard.demo.runs import Mode


def test_an_agreeing_sharded_run_is_no_problem() -> None:
    assert comparison().problems == ()


def test_a_difference_beyond_the_limit_is_a_problem() -> None:
    [problem] = comparison(difference=5e-6).problems
    assert problem == (
        "digits: weights differ by 5.0e-06 in dense/kernel, and only 4.0e-06 is rounding"
    )


def test_a_difference_that_is_not_finite_is_a_problem() -> None:
    assert len(comparison(difference=float("nan")).problems) == 1
    assert len(comparison(difference=float("inf")).problems) == 1


def test_a_flag_without_a_report_is_a_problem() -> None:
    assert comparison(sharding=None).problems == (
        "digits: the flag was on and the pass reported nothing",
    )


def test_a_report_of_nothing_sharded_is_a_problem() -> None:
    nothing = dataclasses.replace(SHARDING, verdict="nothing sharded", variables=())
    assert comparison(sharding=nothing).problems == ("digits: the flag was on and nothing sharded",)


def test_a_baseline_that_was_sharded_is_a_problem() -> None:
    sharded_baseline = dataclasses.replace(BASELINE, sharding=SHARDING)
    assert comparison(baseline=sharded_baseline).problems == (
        "digits: the flag was off and the pass reported a function",
    )


def test_real_runs_of_the_digits_agree_and_are_sharded(tmp_path: pathlib.Path) -> None:
    said: dict[Mode, list[dict[str, float]]] = {mode: [] for mode in Mode}
    compared = comparison_module.compare(
        "digits",
        replicas=2,
        quick=True,
        folder=tmp_path,
        progress=lambda task, mode, message: said[mode].append(message),
    )
    assert compared.problems == ()
    # Two numbers have one sum in either order.
    assert [one.difference for one in compared.agreements] == [0.0, 0.0, 0.0]
    assert compared.sharded.losses[-1] < compared.sharded.losses[0]
    for mode in Mode:
        steps = int(said[mode][0]["steps"])
        assert [message["step"] for message in said[mode][1:]] == list(range(1, steps + 1))
    np.testing.assert_array_equal(
        compared.sharded.losses, [message["loss"] for message in said[Mode.SHARDED][1:]]
    )

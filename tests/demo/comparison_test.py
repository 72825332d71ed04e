"""Claims about demo/comparison.py: what counts as a problem."""

import dataclasses

from tests.demo.samples import BASELINE, SHARDING, comparison, comparison_on_workers


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


def test_workers_whose_weights_differ_are_a_problem() -> None:
    assert comparison_on_workers().problems == ()
    [problem] = comparison_on_workers(last_digest="34" * 32).problems
    assert problem == ("workers_language_model: after the sharded run the workers' weights differ")

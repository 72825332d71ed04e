"""Claims about demo/page.py: the report holds the figures, the verdict and every reason."""

import dataclasses

from tests.demo.samples import NOT_COMPILED, SHARDING, comparison
from tf_wu_shard.demo.page import page
from tf_wu_shard.report.html import render


def test_an_agreeing_comparison_gets_a_good_verdict() -> None:
    section, _ = page([comparison()], NOT_COMPILED).sections
    assert section.good
    assert section.verdict == "the sharded and the unsharded run agree"


def test_a_problem_is_the_verdict() -> None:
    section, _ = page([comparison(difference=1.0)], NOT_COMPILED).sections
    assert not section.good
    assert section.verdict.startswith("digits: weights differ by 1.0e+00 in dense/kernel")


def test_the_curves_are_the_losses_themselves() -> None:
    section, _ = page([comparison()], NOT_COMPILED).sections
    losses, drift = section.lines
    assert [series.values for series in losses.series] == [(2.0, 1.0, 0.5), (2.0, 1.0, 0.5000001)]
    assert drift.series[1].values[:2] == (0.0, 0.0)
    assert drift.series[1].values[2] > 0


def test_every_sharded_variable_and_every_reason_is_listed() -> None:
    _, sharded, left_alone, notes = page([comparison()], NOT_COMPILED).sections[0].tables
    assert sharded.rows == (("dense/kernel", "3 x 5", "flat 15/8", "1", "m, v", "0"),)
    assert left_alone.rows == (("dense/bias", "3 elements, below min_elements=1024"),)
    assert notes.rows == (("a note",),)


def test_a_run_without_a_report_still_makes_a_page() -> None:
    text = render(page([comparison(sharding=None)], NOT_COMPILED))
    assert "the pass reported nothing" in text
    assert "Optimizer slots" not in text


def test_a_slot_is_called_by_what_its_variable_does_not_say() -> None:
    [variable] = SHARDING.variables
    named = dataclasses.replace(
        SHARDING, variables=(dataclasses.replace(variable, slots=("adam/dense_kernel_momentum",)),)
    )
    assert (
        page([comparison(sharding=named)], NOT_COMPILED).sections[0].tables[1].rows[0][4]
        == "momentum"
    )

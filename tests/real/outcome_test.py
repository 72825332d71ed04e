"""A program's share counts a weight as sharded where every function that updates it does so."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.real.outcome import Outcome, Run, judged
from tests.real.program import MIRRORED

WEIGHTS = [("kernel", 3000, False), ("table", 1000 * 6, False), ("bias", 10, False)]
SHAPES = {"kernel": (30, 100), "table": (6, 1000), "table_1": (6, 1000)}
ARRAYS = {"weight 000": np.ones(3, np.float32), "seen 000": np.array(2.0)}


def report(*done: str, left: dict[str, str] | None = None, notes: tuple[str, ...] = ()) -> Any:
    alone = [{"name": name, "reason": why, "where": ""} for name, why in (left or {}).items()]
    return {
        "function": "step",
        "verdict": "nothing sharded",
        "variables": [{"name": name, "shape": SHAPES[name]} for name in done],
        "left_alone": alone,
        "notes": notes,
        "pass_ms": 2.0,
        "trace_ms": 5.0,
    }


def outcome(*reports: Any, arrays: Any = ARRAYS) -> Outcome:
    unsharded = Run(weights=WEIGHTS, arrays=ARRAYS)
    return judged(MIRRORED, unsharded, Run(weights=WEIGHTS, reports=reports, arrays=arrays))


def test_small_weights_do_not_count() -> None:
    small = {"bias": "10 elements, below min_elements=1024"}
    found = outcome(report("kernel", "table", left=small))
    assert (found.share, found.elements, found.reasons) == (1.0, 9000, ())


def test_a_weight_that_one_of_two_functions_leaves_alone_does_not_count() -> None:
    found = outcome(report("kernel", "table"), report("table", left={"kernel": "no rule"}))
    assert found.share == 6000 / 9000
    assert found.reasons == ("kernel: step: no rule",)


def test_a_weight_that_no_report_names_does_not_count() -> None:
    assert outcome(report("kernel")).reasons == ("table: no report names it",)


def test_weights_of_one_name_are_those_that_a_function_counts() -> None:
    twice = Run(weights=[*WEIGHTS, ("table", 6000, False)], arrays=ARRAYS)
    counted = report("kernel", "table_1", "table")
    run = Run(weights=twice.weights, reports=[counted], arrays=ARRAYS)
    assert judged(MIRRORED, twice, run).share == 1.0
    left = report("kernel", "table_1", left={"table": "no rule"})
    run = Run(weights=twice.weights, reports=[left], arrays=ARRAYS)
    assert judged(MIRRORED, twice, run).share == 9000 / 15000


def test_a_report_that_names_nothing_leaves_everything_whole() -> None:
    found = outcome(report("kernel", "table"), report(notes=("the pass failed",)))
    assert found.share == 0.0
    assert found.reasons[0] == "kernel: step: nothing sharded; the pass failed"


def test_times_are_sums_over_all_traces() -> None:
    found = outcome(report("kernel"), report("table"))
    assert (found.pass_ms, found.trace_ms) == (4.0, 10.0)


def test_what_was_seen_is_compared_as_weights_are() -> None:
    found = outcome(report("kernel", "table"), arrays=ARRAYS | {"seen 000": np.array(2.5)})
    assert found.apart == {"seen 000": 0.25}

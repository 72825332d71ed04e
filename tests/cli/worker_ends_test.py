"""What workers say alike is said once, and what they say otherwise is said with their indices."""

from __future__ import annotations

from typing import Any

from tf_wu_shard.cli.worker_ends import WorkerEnd, joined_reports, verdict_lines


def _reporting(index: int, *reports: dict[str, Any]) -> WorkerEnd:
    return WorkerEnd(index, 0, verdict="all", reports=reports)


def test_workers_that_agree_have_one_verdict() -> None:
    assert verdict_lines([WorkerEnd(i, 0, verdict="half") for i in range(3)]) == ["3 workers: half"]
    assert verdict_lines([WorkerEnd(0, 0, verdict="half")]) == ["1 worker: half"]


def test_workers_that_differ_are_named() -> None:
    ends = [
        WorkerEnd(0, 0, verdict="half"),
        WorkerEnd(1, -9),
        WorkerEnd(2, 0, verdict="half"),
        WorkerEnd(3, -15, stopped=True),
        WorkerEnd(4, 7),
    ]
    assert verdict_lines(ends) == [
        "workers 0, 2: half",
        "worker 1: no verdict: the process was ended by SIGKILL",
        "worker 3: no verdict: the process was stopped",
        "worker 4: no verdict: the process ended with status 7",
    ]


def test_reports_that_differ_in_times_alone_are_one() -> None:
    first, second = (
        {"function": "f", "verdict": "sharded", "pass_ms": ms, "trace_ms": 9 * ms}
        for ms in (1.0, 2.0)
    )
    joined = joined_reports([_reporting(0, first), _reporting(1, second)])
    assert joined == [{**first, "workers": [0, 1]}]


def test_a_report_that_differs_follows_those_of_the_first_worker() -> None:
    same, other = {"function": "f", "pass_ms": 1.0}, {"function": "g", "pass_ms": 1.0}
    joined = joined_reports([_reporting(0, same), _reporting(1, other, same), _reporting(2)])
    assert joined == [{**same, "workers": [0, 1]}, {**other, "workers": [1]}]


def test_a_function_that_one_worker_traced_twice_keeps_both_reports() -> None:
    report = {"function": "f", "pass_ms": 1.0}
    joined = joined_reports([_reporting(0, report), _reporting(1, report, report)])
    assert [entry["workers"] for entry in joined] == [[0, 1], [1]]

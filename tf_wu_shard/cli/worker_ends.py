"""What the workers of a local cluster left behind, joined to one answer.

Answers: the verdict of a cluster, in one line where its workers agree, and the reports of all in
one list, in which what several workers report alike stands once. It does not judge whether workers
that differ may differ.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tf_wu_shard.cli.ended import ended_text

# What differs between two traces of the same function.
_TIMES = frozenset({"pass_ms", "trace_ms"})


@dataclasses.dataclass(frozen=True)
class WorkerEnd:
    """How one worker ended, and what it said.

    Attributes:
        index: Its place in the cluster, from 0.
        status: Its exit status, or the negative number of the signal that ended it.
        stopped: Whether it was told to stop; its status then says nothing of the script.
        verdict: What it says was sharded; None where it ended before it could say that.
        refused: Whether its script ended well and what was sharded still makes the run a failed
            one.
        reports: Its reports, as `Report.to_json` has them; none where none were asked for.
    """

    index: int
    status: int
    stopped: bool = False
    verdict: str | None = None
    refused: bool = False
    reports: tuple[dict[str, Any], ...] = ()


def verdict_lines(ends: Sequence[WorkerEnd]) -> list[str]:
    """One line for all workers that say the same, without a full stop.

    Args:
        ends: Of each worker, in their order.
    """
    saying: dict[str, list[int]] = {}
    for end in ends:
        saying.setdefault(_said(end), []).append(end.index)
    if len(saying) == 1:
        number = f"{len(ends)} workers" if len(ends) > 1 else "1 worker"
        return [f"{number}: {said}" for said in saying]
    return [f"{named(indices)}: {said}" for said, indices in saying.items()]


def named(indices: Sequence[int]) -> str:
    """`worker 1`, or `workers 0, 2`."""
    listed = ", ".join(map(str, indices))
    return f"worker {listed}" if len(indices) == 1 else f"workers {listed}"


def joined_reports(ends: Iterable[WorkerEnd]) -> list[dict[str, Any]]:
    """The reports of the first worker, then what others report otherwise.

    Args:
        ends: Of each worker, in their order.

    Returns:
        The reports as they were, each with one field more: `workers`, the indices of the workers
        that report the same. Times are those of the first of them.
    """
    joined: dict[tuple[str, int], dict[str, Any]] = {}
    for end in ends:
        met: dict[str, int] = {}
        for report in end.reports:
            same = {field: value for field, value in report.items() if field not in _TIMES}
            text = json.dumps(same, sort_keys=True)
            # A function that one worker traced twice has two reports of the same text.
            met[text] = met.get(text, 0) + 1
            entry = joined.setdefault((text, met[text]), {**report, "workers": []})
            entry["workers"].append(end.index)
    return list(joined.values())


def _said(end: WorkerEnd) -> str:
    if end.verdict is not None:
        return end.verdict
    how = "was stopped" if end.stopped else ended_text(end.status)
    return f"no verdict: the process {how}"

"""What `wu-shard run` says when its script has ended: what was sharded, or why nothing was."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tf_wu_shard import config

if TYPE_CHECKING:
    from tf_wu_shard.report.report import Report

# As many functions as one paragraph bears; the report file has them all.
_MAX_LISTED = 3


def finish(
    options: config.ShardingOptions | None, path: pathlib.Path | None, tell: Callable[[str], None]
) -> int:
    """Writes the reports and tells the verdict.

    Args:
        options: What sharding was asked for; None for none, of which there is no verdict.
        path: Where to write the reports; None for nowhere.
        tell: What to call with the verdict.

    Returns:
        1 if that makes a good run a failed one, else 0.
    """
    reports = _reports()
    status = 0
    if path is not None:
        shown = reports if options is not None or reports else (_not_asked(),)
        status = write(path, [json.loads(report.to_json()) for report in shown])
    if options is None:
        return status
    sharded = [report for report in reports if report.verdict != "nothing sharded"]
    if sharded:
        tell(_verdicts(sharded))
    elif not reports and _is_evaluator():
        tell("nothing was sharded: this task is an evaluator, which trains nothing")
    else:
        kind = "error" if options.on_refusal == "raise" else "warning"
        tell(f"{kind}: nothing was sharded: {_why_nothing(reports)}")
        status = 1 if options.on_refusal == "raise" else status
    return status


def write(path: pathlib.Path, reports: list[dict[str, Any]]) -> int:
    """Writes the report file; returns 1 if that cannot be done, and says why.

    Args:
        path: The file.
        reports: What JSON knows of each report.
    """
    try:
        path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"wu-shard run: error: cannot write the report: {error}", file=sys.stderr)
        return 1
    return 0


def _not_asked() -> Report:
    """The report of a script that ran unsharded."""
    from tf_wu_shard import refusals
    from tf_wu_shard.report.published import nothing_sharded

    return nothing_sharded("all functions", refusals.Topology.NOT_ASKED_FOR.at())


def _reports() -> tuple[Report, ...]:
    if "tensorflow" not in sys.modules:
        return ()
    import tf_wu_shard

    reports: tuple[Report, ...] = tf_wu_shard.reports()
    return reports


def _is_evaluator() -> bool:
    """Whether TF_CONFIG says that this process evaluates what others train."""
    try:
        task = json.loads(os.environ.get("TF_CONFIG", "{}"))["task"]
        return bool(task["type"] == "evaluator")
    except (ValueError, KeyError, TypeError):
        return False


def _why_nothing(reports: tuple[Report, ...]) -> str:
    if "tensorflow" not in sys.modules:
        return "the script never imported TensorFlow"
    if reports:
        return _verdicts(reports)
    if config.current_options() is None:
        return f"the script turned {config.FLAG} off"
    return "no function that reduces gradients over replicas was traced"


def _verdicts(reports: Sequence[Report]) -> str:
    from tf_wu_shard.report.report import verdict_line

    return _listed([verdict_line(report) for report in reports])


def _listed(parts: list[str]) -> str:
    unique = list(dict.fromkeys(parts))
    more = len(unique) - _MAX_LISTED
    return "; ".join(unique[:_MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")

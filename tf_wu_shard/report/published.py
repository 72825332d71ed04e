"""The reports of this process, and how a verdict reaches the user: never silently."""

from __future__ import annotations

from absl import logging

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import NothingShardedError
from tf_wu_shard.report.summary import Bytes, LeftAloneVariable, Report

_reports: list[Report] = []


def reports() -> tuple[Report, ...]:
    """What was done to the functions that were traced in this process with the flag on.

    Returns:
        A report for each function that the pass rewrote or refused, oldest first. Functions that
        train nothing have none.
    """
    return tuple(_reports)


def clear_reports() -> None:
    """Forgets all reports; what is sharded stays so."""
    _reports.clear()


def publish(*found: Report, options: ShardingOptions) -> None:
    """Keeps the reports of one function and logs each one's verdict in one line.

    Args:
        found: What was done to the function, and to the branches and loops in it.
        options: With `on_refusal="raise"` a function of which nothing was sharded is an error,
            else a warning.

    Raises:
        NothingShardedError: Nothing was sharded and the options say to raise.
    """
    _reports.extend(found)
    shared = any(report.variables for report in found)
    for report in found:
        if report.variables:
            logging.info("weight-update sharding: %s", report.headline)
            continue
        message = f"weight_update_sharding is on, but {report.headline}"
        if options.on_refusal == "raise" and not shared:
            raise NothingShardedError(message)
        logging.warning("%s", message)


def nothing_sharded(function: str, reason: str, names: tuple[str, ...] = ()) -> Report:
    """The report of a function that was left as it was for one reason.

    Args:
        function: Its name.
        reason: Why.
        names: The variables it concerns; none for all of them.

    Returns:
        The report, without times.
    """
    return Report(
        function=function,
        verdict="nothing sharded",
        num_replicas=0,
        variables=(),
        left_alone=tuple(
            LeftAloneVariable(name, reason, "") for name in names or ("all variables",)
        ),
        notes=(),
        slot_bytes_per_replica=Bytes(0, 0),
        wire_bytes=Bytes(0, 0),
        emitted={},
    )

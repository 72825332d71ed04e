"""The reports of this process, and how a verdict reaches the user: never silently."""

from __future__ import annotations

import dataclasses
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import NothingShardedError, TooLittleShardedError
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.report.report import Bytes, Report, facts, verdict_line
from tf_wu_shard.report.share import LEAST, NONE, held_back, left_alone

# What a pass says anew each time that a report is asked for, by its flag.
Living = Mapping[str, Callable[[], str]]

_NO_VARIABLES: Mapping[str, Any] = types.MappingProxyType({})


class _Published(NamedTuple):
    """A report, what passes say anew, and the live variables that it names."""

    report: Report
    living: Living
    variables: Mapping[str, weakref.ref[Any]]


_reports: list[_Published] = []


def reports() -> tuple[Report, ...]:
    """What was done to the functions that were traced in this process with the flag on.

    Returns:
        A report for each function of which updates were sharded or refused, and for each that
        another pass changed, oldest first. Other functions have none.
    """
    return tuple(_up_to_now(one.report, one.living) for one in _reports)


def latest_on(
    weights: Iterable[Any], slots: Iterable[Any]
) -> tuple[Report, Mapping[str, Any]] | None:
    """The newest report that is about some live variables and no others.

    Args:
        weights: The variables that are trained; names are no help, as many models share theirs.
        slots: The variables of their optimizer.

    Returns:
        The report, and the weights by the names that it gives them; None where there is none.
    """
    trained, held = ({id(v): v for v in variables} for variables in (weights, slots))
    for one in reversed(_reports):
        live = {name: id(found()) for name, found in one.variables.items()}
        names = _weights_of(one.report)
        if not names or any(live.get(name) not in trained for name in names):
            continue
        if all(live.get(name) in held for name in _slots_of(one.report)):
            report = _up_to_now(one.report, one.living)
            return report, {name: trained[live[name]] for name in names}
    return None


def _weights_of(report: Report) -> set[str]:
    return {v.name for v in report.variables} | {left.name for left in report.left_alone}


def _slots_of(report: Report) -> set[str]:
    return {slot for v in report.variables for slot in v.slots}


def _up_to_now(report: Report, living: Living) -> Report:
    if not living:
        return report
    said = {flag: one_line(change()) for flag, change in living.items()}
    return dataclasses.replace(report, changes={**report.changes, **said})


def one_line(text: object) -> str:
    """A text as words on one line, whatever a pass wrote."""
    return " ".join(str(text).split())


def clear_reports() -> None:
    """Forgets all reports; what is sharded stays so."""
    _reports.clear()


def publish(
    *found: Report,
    options: ShardingOptions | None,
    living: Living = types.MappingProxyType({}),
    variables: Mapping[str, Any] = _NO_VARIABLES,
) -> None:
    """Keeps the reports of one function and logs each one's verdict in one line.

    It is a warning where nothing is sharded, or less than half, or less than the options ask for.

    Args:
        found: What was done to the function, and to the branches and loops in it.
        options: With `on_refusal="raise"` a function of which nothing was sharded, or less than
            `min_sharded`, is an error. None where there was nothing to shard, or nobody asked.
        living: What passes say anew each time that the reports are asked for.
        variables: The live variables that the reports name; see `latest_on`.

    Raises:
        NothingShardedError: Nothing was sharded and the options say to raise.
        TooLittleShardedError: Less than `min_sharded` was, and the options say to raise.
    """
    for report in found:
        named = _weights_of(report) | _slots_of(report)
        known = {name: weakref.ref(variables[name]) for name in named if name in variables}
        _reports.append(_Published(report, living, known))
    if options is None:
        for report in found:
            logging.info("%s", "; ".join((report.headline, *facts(report))))
        return
    if found and is_refused(found, options):
        messages = "; ".join(map(_but, found))
        if not any(report.variables for report in found):
            raise NothingShardedError(messages)
        asked = f"min_sharded={options.min_sharded:g} asks for more"
        raise TooLittleShardedError(f"{messages}; {asked}")
    for report in found:
        if report.variables and report.share >= max(LEAST, options.min_sharded):
            logging.info("weight-update sharding: %s", report.headline)
        else:
            logging.warning("%s", _but(report))


def is_refused(found: Sequence[Report], options: ShardingOptions) -> bool:
    """Whether `publish` raises an error for the reports of one function.

    Args:
        found: What was done to it, and to the branches and loops in it.
        options: What the user asked for.
    """
    if options.on_refusal != "raise" or not found:
        return False
    if not any(report.variables for report in found):
        return True
    parts = [(report.elements, report.slot_bytes) for report in found]
    totals = (sum((p[0] for p in parts), NONE), sum((p[1] for p in parts), NONE))
    return min(total.fraction for total in totals) < options.min_sharded


def _but(report: Report) -> str:
    """The verdict on a function of which little or nothing is sharded, in one line."""
    return f"weight_update_sharding is on, but {verdict_line(report)}"


def nothing_sharded(function: str, refusal: Refusal, names: tuple[str, ...] = ()) -> Report:
    """The report of a function that was left as it was for one reason.

    Args:
        function: Its name.
        refusal: Why.
        names: The variables it concerns; none for all of them.

    Returns:
        The report, without times.
    """
    left = tuple(left_alone(name, refusal) for name in names or ("all variables",))
    report = nothing_to_shard(function)
    return dataclasses.replace(report, left_alone=left, held_back=held_back(left, 0.0))


def nothing_to_shard(function: str, *notes: str) -> Report:
    """The report of a function of which there is nothing to shard, without times.

    Args:
        function: Its name.
        notes: What to say of it.
    """
    return Report(
        function=function,
        verdict="nothing sharded",
        num_replicas=0,
        variables=(),
        left_alone=(),
        notes=notes,
        slot_bytes_per_replica=Bytes(0, 0),
        wire_bytes=Bytes(0, 0),
        emitted={},
    )

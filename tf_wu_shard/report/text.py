"""The report as text: the verdict first, then the numbers, then every reason."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tf_wu_shard.report.quantities import byte_text
from tf_wu_shard.report.share import HeldBack, Share

if TYPE_CHECKING:
    from tf_wu_shard.report.summary import Report

_NOTHING: Mapping[str, str] = types.MappingProxyType({})


def headline(report: Report) -> str:
    """The verdict in one line."""
    if not report.variables:
        held = report.held_back.largest if report.held_back is not None else ""
        left = sorted(report.left_alone, key=lambda a: (a.name != held, a.is_small))
        reasons = [f"{a.name}: {a.reason}" for a in left] + list(report.notes)
        why = reasons[0] if reasons else "it reduces no gradient over replicas"
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        return f"{report.function}: nothing sharded: {why}{more}"
    slots, wire = report.slot_bytes_per_replica, report.wire_bytes
    weights = report.weight_bytes_per_replica
    stored = f"slots {byte_text(slots.unsharded)} -> {byte_text(slots.sharded)} a replica"
    if weights.sharded != weights.unsharded:
        stored += f"   weights {byte_text(weights.unsharded)} -> {byte_text(weights.sharded)}"
    moved = "unchanged" if wire.sharded == wire.unsharded else f"was {byte_text(wire.unsharded)}"
    return (
        f"{report.function}: sharded {share_text(report)} over {report.num_replicas} replicas"
        f"   {stored}   wire {byte_text(wire.sharded)} a step ({moved})"
    )


def share_text(report: Report) -> str:
    """How much is sharded: `99 % of 4,128 elements and 99 % of 33.0 kB of slots: 1 of 2 variables`.

    Args:
        report: A report of a function of which something is sharded.
    """
    elements, slots = report.elements, report.slot_bytes
    text = f"{percent_text(elements)} of {elements.total:,} elements"
    if slots.total:
        text += f" and {percent_text(slots)} of {byte_text(slots.total)} of slots"
    total = len(report.variables) + len(report.left_alone)
    return f"{text}: {len(report.variables)} of {total} variables"


def percent_text(share: Share) -> str:
    """A share in percent, never more than it is: `99 %` of nearly all, `under 1 %` of a trace."""
    percent = 100 * share.sharded // share.total if share.total else 100
    return "under 1 %" if share.sharded and not percent else f"{percent} %"


def held_back_text(report: Report) -> str:
    """What holds most of the elements back, where and what lifts it; "" where nothing does."""
    held = report.held_back
    if held is None:
        return ""
    which = held.largest
    if held.variables > 1:
        which = f"{held.variables} variables such as {held.largest}"
    if held.elements:
        which += f", {percent_text(Share(held.elements, report.elements.total))} of the elements"
    return f"held back: {which}: {held.reason}{place_and_cure(held)}"


def verdict_line(report: Report) -> str:
    """The verdict in one line, with what holds most back, where, and what lifts it."""
    line = headline(report)
    if report.variables:
        return "; ".join((line, *held_lines(report)))
    return line + (place_and_cure(report.held_back) if report.held_back is not None else "")


def held_lines(report: Report) -> list[str]:
    """`held_back_text` as a line; no line where nothing is held back."""
    held = held_back_text(report)
    return [held] if held else []


def place_and_cure(held: HeldBack) -> str:
    """Where a reason was found, and what lifts it, as it follows the reason."""
    places = ", ".join(place for place in (held.where, held.line) if place)
    place = f" (at {places})" if places else ""
    return place + (f"; lifted by {held.cure}" if held.cure else "")


def facts(report: Report) -> list[str]:
    """What concerns the step as a whole: replicas' places, how weights travel, what is whole."""
    found = [f"replicas: {report.place}"] if report.place else []
    for dtype in sorted({v.gathered_in for v in report.variables} - {""}):
        count = sum(v.gathered_in == dtype for v in report.variables)
        found.append(
            f"weights gathered in {dtype}: {count} of {len(report.variables)}, the shards keep"
            " their own type"
        )
    whole = sum(bool(v.whole) for v in report.variables)
    if whole:
        found.append(f"put together whole for matrix functions: {whole} of {len(report.variables)}")
    return found


def as_text(report: Report, known: Mapping[str, str] = _NOTHING) -> str:
    """The whole report.

    Args:
        report: The report.
        known: What else to say of variables that are left alone, by name.
    """
    lines = [headline(report), *held_lines(report), *facts(report)]
    lines += variable_lines(report, known)
    lines += [f"note: {note}" for note in report.notes]
    if report.emitted:
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(report.emitted.items()))
        lines.append(f"emitted {counts}; pass {report.pass_ms:.0f} ms of {report.trace_ms:.0f} ms")
    return "\n".join(lines)


def variable_lines(report: Report, known: Mapping[str, str] = _NOTHING) -> list[str]:
    """A line for each variable that is sharded, then for each that is left alone, with why.

    Args:
        report: The report.
        known: What else to say of variables that are left alone, by name.
    """
    names = [v.name for v in report.variables] + [a.name for a in report.left_alone]
    width = max(map(len, names), default=0)
    lines = []
    for variable in report.variables:
        slots = ", ".join(slot_label(s, variable.name) for s in variable.slots) or "none"
        gathered = f"   gathered in {variable.gathered_in}" if variable.gathered_in else ""
        whole = f"   whole {variable.whole}" if variable.whole else ""
        lines.append(
            f"  {variable.name:<{width}}  {variable.layout}   slots {slots}"
            f"   bucket {variable.bucket}{gathered}{whole}"
        )
    if report.left_alone:
        lines.append("left alone")
    for left in report.left_alone:
        where = f" (at {left.where})" if left.where else ""
        more = f"{known[left.name]}   " if left.name in known else ""
        lines.append(f"  {left.name:<{width}}  {more}{left.reason}{where}")
    return lines


def slot_label(slot: str, variable: str) -> str:
    """What tells a slot from its variable's others: Keras puts the variable's path first.

    A slot that is named otherwise keeps its whole name; so does one of which a number would be
    left, as TensorFlow counts variables of one name: of `Variable`, `Variable_3` is no slot `3`.
    """
    label = slot.rpartition(variable.replace("/", "_") + "_")[2]
    return slot if label.isdecimal() else label

"""The report as text: the verdict first, then the numbers, then every reason."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tf_wu_shard.plan.types import TOO_SMALL
from tf_wu_shard.report.quantities import byte_text

if TYPE_CHECKING:
    from tf_wu_shard.report.summary import Report

_NOTHING: Mapping[str, str] = types.MappingProxyType({})


def headline(report: Report) -> str:
    """The verdict in one line."""
    total = len(report.variables) + len(report.left_alone)
    if not report.variables:
        left = sorted(report.left_alone, key=lambda a: TOO_SMALL in a.reason)
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
        f"{report.function}: sharded {len(report.variables)} of {total} variables over"
        f" {report.num_replicas} replicas   {stored}   wire {byte_text(wire.sharded)} a step"
        f" ({moved})"
    )


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
    lines = [headline(report), *facts(report)]
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

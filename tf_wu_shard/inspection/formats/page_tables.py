"""The tables of an answer: as data, for a page to lay out and for Markdown.

Their texts hold no character that does not print; the longest are cut, and so are the tables, with
a note that says what was left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import bytes_of_named
from tf_wu_shard.inspection.answers.answer import (
    FunctionAnswer,
    MemoryRow,
    RefusedAnswer,
    UpdateAnswer,
)
from tf_wu_shard.inspection.answers.counted import (
    NOT_KNOWN,
    bytes_text,
    counts_all_slots,
    counts_all_weights,
    slots_text,
)
from tf_wu_shard.inspection.formats.text import printable
from tf_wu_shard.report.quantities import byte_text, shape_text
from tf_wu_shard.report.report import Bytes, Report, ShardedVariable, slot_label
from tf_wu_shard.report.share import LeftAloneVariable
from tf_wu_shard.report.tables import AnyCell, Cell, Name, Table

_UNKNOWN = Cell(NOT_KNOWN)

# Shape, type, size, update and slots of what a report names and nothing else does.
_NOTHING_KNOWN: tuple[AnyCell, ...] = (_UNKNOWN, NOT_KNOWN, _UNKNOWN, "", NOT_KNOWN)

# Where a reason was found that has to do with no op.
_NO_OP = "no op"


def variables(function: FunctionAnswer, report: Report, most: int) -> Table:
    """Every variable that a function updates, the largest first.

    Args:
        function: The function.
        report: Its plan.
        most: Most rows.
    """
    known = {weight.name: _sharded(weight) for weight in report.variables}
    known |= {answer.variable: _refused(answer) for answer in function.refused}
    known |= {update.variable: _updated(update) for update in function.updates}
    layouts = {variable.name: variable.layout for variable in report.variables}
    small = {
        left.name: f"left alone, {_small(left, report.num_replicas)}"
        for left in report.left_alone
        if left.is_small
    }
    names = dict.fromkeys((*layouts, *(left.name for left in report.left_alone)))
    plans = {name: small.get(name, "left alone") for name in names}
    plans |= layouts
    rows = [(Name(printable(n)), *known.get(n, _NOTHING_KNOWN), plans[n]) for n in names]
    rows.sort(key=lambda row: -row[3].key if isinstance(row[3], Cell) else 0)
    flat = any(layout.startswith("flat ") for layout in layouts.values())
    note = (
        'A plan of "flat 4096/8" cuts 4096 elements, in their order, into 8 runs.' if flat else ""
    )
    return Table(
        title="Variables",
        columns=("Variable", "Shape", "Type", "Size", "Update", "Slots", "Plan"),
        rows=tuple(rows[:most]),
        note=_with_left_out(note, len(rows), most, "largest"),
        numbers=("Size",),
        sortable=True,
    )


def _updated(update: UpdateAnswer) -> tuple[AnyCell, ...]:
    slots = [slot_label(slot, update.variable) for slot in update.slots]
    return *_extent(update.shape, update.dtype, update.bytes), update.optimizer, _slots(slots)


def _refused(answer: RefusedAnswer) -> tuple[AnyCell, ...]:
    """What is known of a weight whose update was not understood: not what that is."""
    slots = Name(printable(slots_text(answer))) if answer.slots else slots_text(answer)
    return *_extent(answer.shape, answer.dtype, answer.bytes), "", slots


def _sharded(weight: ShardedVariable) -> tuple[AnyCell, ...]:
    """What a plan says of a weight of which there is no other answer."""
    size = math.prod(weight.shape) * bytes_of_named(weight.dtype)
    slots = [slot_label(slot, weight.name) for slot in weight.slots]
    return *_extent(weight.shape, weight.dtype, size), "", _slots(slots)


def _extent(
    shape: tuple[int, ...] | None, dtype: str, size: int | None
) -> tuple[AnyCell, AnyCell, AnyCell]:
    return (
        _UNKNOWN if shape is None else Cell(shape_text(shape), math.prod(shape)),
        dtype or NOT_KNOWN,
        _UNKNOWN if size is None else Cell(byte_text(size), size),
    )


def _slots(labels: Sequence[str]) -> AnyCell:
    return Name(printable(", ".join(labels))) if labels else "none"


def left_alone(function: FunctionAnswer, report: Report, most: int) -> Table:
    """What is left alone and why; what is merely too small shares one row for each limit, the last.

    Args:
        function: The function.
        report: Its plan.
        most: Most rows.
    """
    lines = dict(function.source_lines)
    found = [left for left in report.left_alone if not left.is_small]
    small: dict[tuple[str, int], list[LeftAloneVariable]] = {}
    for left in report.left_alone:
        if left.is_small:
            small.setdefault((left.kind, left.detail["limit"]), []).append(left)
    rows = [_left(left, lines.get(left.where, "")) for left in found[:most]]
    rows += [_too_small(alike, report.num_replicas) for alike in small.values()]
    return Table(
        title="Left alone",
        columns=("Variable", "Why", "Found at", "What would lift it"),
        rows=tuple(rows),
        empty="Nothing is left alone.",
        note=_with_left_out("", len(found), most, "first"),
        sortable=len(rows) > 1,
    )


def _left(left: LeftAloneVariable, line: str) -> tuple[AnyCell, ...]:
    where = f"{left.where}, made by {line}" if line else left.where
    lift = printable(left.cure) or "nothing known"
    place = Name(printable(where)) if where else _NO_OP
    return Name(printable(left.name)), printable(left.reason), place, lift


def _small(left: LeftAloneVariable, replicas: int) -> str:
    """For what a variable is small: the more replicas, the more is."""
    each = left.is_of(refusals.Plan.TOO_SMALL_FOR_REPLICAS)
    return f"small for {replicas:,} replicas" if each else "small"


def _too_small(alike: Sequence[LeftAloneVariable], replicas: int) -> tuple[AnyCell, ...]:
    """One row for all variables that are too small to share; the table of variables has each."""
    first = alike[0]
    numbers = sorted({left.detail["elements"] for left in alike})
    extent = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
    refusal = first.refusal.but(elements=extent)
    count = f"{len(alike):,} variables" if len(alike) > 1 else "1 variable"
    return f"{count}, {_small(first, replicas)}", refusal.reason, _NO_OP, refusal.cure


def memory(function: FunctionAnswer) -> Table:
    """What the fullest of so many replicas holds."""
    sizes = ("Weights before", "Weights after", "Slots before", "Slots after")
    columns = ("Replicas", *sizes, "Saved")
    return Table(
        title="Memory of the fullest replica",
        columns=columns,
        rows=tuple(_memory(row, function) for row in function.memory),
        numbers=columns,
        empty="No weights or slots were found.",
    )


def _memory(row: MemoryRow, function: FunctionAnswer) -> tuple[AnyCell, ...]:
    weights, slots = counts_all_weights(function), counts_all_slots(function)
    before = row.weights.unsharded + row.slots.unsharded
    after = row.weights.sharded + row.slots.sharded
    saved = 1 - after / before if before else 0.0
    return (
        Cell(f"{row.replicas:,}", row.replicas),
        *_cells(row.weights, all_counted=weights),
        *_cells(row.slots, all_counted=slots),
        Cell(f"{saved:.0%}" if not saved or (weights and slots) else f"at most {saved:.0%}", saved),
    )


def _cells(size: Bytes, *, all_counted: bool) -> tuple[Cell, ...]:
    return tuple(
        Cell(bytes_text(count, all_counted=all_counted), count)
        for count in (size.unsharded, size.sharded)
    )


def functions(found: Sequence[FunctionAnswer], most: int) -> Table:
    """All functions, those that train first."""
    ordered = sorted(found, key=lambda function: not function.trains)
    return Table(
        title="",
        columns=("Function", "What it does"),
        rows=tuple((Name(printable(f.name)), printable(f.verdict)) for f in ordered[:most]),
        empty="The model has no function.",
        note=_with_left_out("", len(found), most, "first"),
        sortable=True,
    )


def notes(found: Sequence[str], title: str, most: int) -> Table:
    """Notes, a row each."""
    return Table(
        title=title,
        columns=("Note",),
        rows=tuple((printable(note),) for note in found[:most]),
        note=_with_left_out("", len(found), most, "first"),
    )


def _with_left_out(note: str, count: int, most: int, which: str) -> str:
    if count <= most:
        return note
    left = f"The {most:,} {which} of {count:,}; --format json has all."
    return f"{note} {left}".strip()

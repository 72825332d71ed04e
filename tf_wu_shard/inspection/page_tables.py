"""The tables of an answer: as data, for a page to lay out and for Markdown.

Their texts hold no character that does not print; the longest are cut, and so are the tables, with
a note that says what was left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.inspection.answer import FunctionAnswer, MemoryRow, UpdateAnswer
from tf_wu_shard.inspection.lifting import lifted_by
from tf_wu_shard.inspection.text import printable
from tf_wu_shard.plan.types import TOO_SMALL
from tf_wu_shard.report.quantities import byte_text, shape_text
from tf_wu_shard.report.summary import Bytes, LeftAloneVariable, Report
from tf_wu_shard.report.tables import AnyCell, Cell, Name, Table
from tf_wu_shard.report.text import slot_label

_UNKNOWN = "not known"

# Where a reason was found that has to do with no op.
_NO_OP = "no op"


def variables(function: FunctionAnswer, report: Report, most: int) -> Table:
    """Every variable that a function updates, the largest first.

    Args:
        function: The function.
        report: Its plan.
        most: Most rows.
    """
    updates = {update.variable: update for update in function.updates}
    layouts = {variable.name: variable.layout for variable in report.variables}
    small = {left.name for left in report.left_alone if TOO_SMALL in left.reason}
    names = dict.fromkeys((*layouts, *(left.name for left in report.left_alone)))
    plans = {name: "left alone, small" if name in small else "left alone" for name in names}
    plans |= layouts
    rows = [_variable(name, updates.get(name), plans[name]) for name in names]
    rows.sort(key=lambda row: -row[3].key if isinstance(row[3], Cell) else 0)
    flat = any(layout.startswith("flat ") for layout in layouts.values())
    told = (
        'A plan of "flat 4096/8" cuts 4096 elements, in their order, into 8 runs.' if flat else ""
    )
    return Table(
        title="Variables",
        columns=("Variable", "Shape", "Type", "Size", "Update", "Slots", "Plan"),
        rows=tuple(rows[:most]),
        note=_with_left_out(told, len(rows), most, "largest"),
        numbers=("Size",),
        sortable=True,
    )


def _variable(name: str, update: UpdateAnswer | None, plan: str) -> tuple[AnyCell, ...]:
    if update is None:
        unknown = Cell(_UNKNOWN)
        return Name(printable(name)), unknown, "", unknown, "", "", plan
    slots = ", ".join(slot_label(slot, name) for slot in update.slots)
    size = math.prod(update.shape)
    return (
        Name(printable(name)),
        Cell(shape_text(update.shape), size),
        update.dtype,
        Cell(byte_text(update.bytes), update.bytes),
        update.optimizer,
        Name(printable(slots)) if slots else "none",
        plan,
    )


def left_alone(function: FunctionAnswer, report: Report, most: int) -> Table:
    """What is left alone and why; what is merely too small shares one row for each limit, the last.

    Args:
        function: The function.
        report: Its plan.
        most: Most rows.
    """
    lines = dict(function.source_lines)
    found = [left for left in report.left_alone if TOO_SMALL not in left.reason]
    small: dict[str, list[str]] = {}
    for left in report.left_alone:
        elements, below, limit = left.reason.partition(TOO_SMALL)
        if below:
            small.setdefault(limit, []).append(elements.strip())
    rows = [_left(left, lines.get(left.where, "")) for left in found[:most]]
    rows += [_too_small(limit, sizes) for limit, sizes in small.items()]
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
    lift = lifted_by(left.reason) or "the reason does not tell"
    place = Name(printable(where)) if where else _NO_OP
    return Name(printable(left.name)), printable(left.reason), place, lift


def _too_small(limit: str, sizes: Sequence[str]) -> tuple[AnyCell, ...]:
    """One row for all variables that are too small to share; the table of variables has each."""
    numbers = sorted({int(size) for size in sizes})
    extent = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
    reason = f"{extent} {TOO_SMALL}{limit}"
    count = f"{len(sizes):,} small variables" if len(sizes) > 1 else "1 small variable"
    return count, reason, _NO_OP, lifted_by(reason)


def memory(rows: Sequence[MemoryRow]) -> Table:
    """What the fullest of so many replicas holds."""
    sizes = ("Weights before", "Weights after", "Slots before", "Slots after")
    columns = ("Replicas", *sizes, "Saved")
    return Table(
        title="Memory of the fullest replica",
        columns=columns,
        rows=tuple(_memory(row) for row in rows),
        numbers=columns,
        empty="No weights or slots were found.",
    )


def _memory(row: MemoryRow) -> tuple[AnyCell, ...]:
    before = row.weights.unsharded + row.slots.unsharded
    after = row.weights.sharded + row.slots.sharded
    saved = 1 - after / before if before else 0.0
    return (
        Cell(f"{row.replicas:,}", row.replicas),
        *_cells(row.weights),
        *_cells(row.slots),
        Cell(f"{saved:.0%}", saved),
    )


def _cells(size: Bytes) -> tuple[Cell, Cell]:
    return Cell(byte_text(size.unsharded), size.unsharded), Cell(
        byte_text(size.sharded), size.sharded
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


def _with_left_out(told: str, count: int, most: int, which: str) -> str:
    if count <= most:
        return told
    left = f"The {most:,} {which} of {count:,}; --format json has all."
    return f"{told} {left}".strip()

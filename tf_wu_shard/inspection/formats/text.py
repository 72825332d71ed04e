"""The answer as text for a terminal: the verdict first, then numbers, then every reason.

Names come out of a file that anyone may have made: what could move a cursor or set a color is
written as an escape, and what is endless is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tf_wu_shard.inspection.answers.answer import SCRIPT, FunctionAnswer, Inspection, MemoryRow
from tf_wu_shard.inspection.answers.counted import (
    bytes_text,
    counts_all_slots,
    counts_all_weights,
    described_line,
    what_is_counted,
)
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff
from tf_wu_shard.report.report import Bytes, as_text

_LONGEST_LINE = 400

# More lines of a diff than that nobody reads on a terminal.
_MOST_DIFF_LINES = 400


def as_lines(inspection: Inspection) -> str:
    """The whole answer, the middle of long diffs left out.

    Args:
        inspection: The answer as data.
    """
    return "\n".join(_lines(inspection, _MOST_DIFF_LINES))


def as_all_lines(inspection: Inspection) -> str:
    """The whole answer with all lines of diffs, for a file."""
    return "\n".join(_lines(inspection, None))


def diff_lines(diff: GraphDiff, most: int | None) -> list[str]:
    """The lines of a diff, those beyond `most` left out, with a line that says so.

    Args:
        diff: The diff.
        most: Most lines; None for all.
    """
    if most is None or len(diff.lines) <= most:
        return list(diff.lines)
    left = len(diff.lines) - most
    how = "--diff --output FILE, as text, has all"
    return [*diff.lines[:most], f"... {left:,} more lines of {len(diff.lines):,} left out: {how}"]


def diff_about(diff: GraphDiff) -> str:
    """What a diff is of, and how much changes, in a sentence."""
    if diff.refusal:
        return f"no diff of {diff.about}: {diff.refusal}"
    counts = f"{diff.added:,} ops added, {diff.removed:,} removed, {diff.changed:,} changed"
    return f"diff of {diff.about}" + (f": {counts}" if diff.lines else "")


def printable(line: str) -> str:
    """A line that only writes characters: others are escaped, and a long line is cut.

    Args:
        line: Any text.
    """
    return escaped_controls(
        line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 4] + " ..."
    )


def escaped_controls(line: str) -> str:
    """A line in which what is no printing character is an escape.

    Args:
        line: Any text.
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in line
    )


def _lines(inspection: Inspection, most: int | None) -> Iterator[str]:
    """All lines, as they are shown; `most` lines of a diff, or every one uncut."""
    yield printable(f"{inspection.form}, {inspection.variables} variables: {inspection.verdict}")
    if inspection.form == SCRIPT:
        yield printable(inspection.how)
    for function in inspection.functions:
        yield printable(f"{function.name}: {function.verdict}")
        yield from map(printable, _of_function(function))
        if function.diff is not None:
            yield printable(f"  {diff_about(function.diff)}")
            shown = escaped_controls if most is None else printable
            yield from (shown(f"  {line}") for line in diff_lines(function.diff, most))
    yield from (printable(f"note: {note}") for note in inspection.notes)


def _of_function(function: FunctionAnswer) -> Iterator[str]:
    if function.reductions:
        yield f"  reduces {_several(function.reductions, 'gradient')}, over {function.groups}"
    if function.assumed:
        taken = _several(function.assumed, "gradient")
        where = (
            "where it enters its update"
            if function.assumed == 1
            else "where they enter their updates"
        )
        yield f"  takes {taken} for summed {where}"
    found = Counter((u.optimizer, u.because) for u in function.updates)
    for (optimizer, because), count in found.items():
        yield f"  {_several(count, 'update')}: {optimizer} ({because})"
    if function.report is not None:
        known = {answer.variable: described_line(answer) for answer in function.refused}
        for line in as_text(function.report, known).splitlines():
            yield f"  {line}"
    if function.memory:
        yield "  replicas   weights a replica        slots a replica"
        yield from (_of_row(row, function) for row in function.memory)
    if function.report is not None:
        yield from (f"  {said}" for said in what_is_counted(function, function.report))


def _several(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _of_row(row: MemoryRow, function: FunctionAnswer) -> str:
    weights = _before_and_after(row.weights, all_counted=counts_all_weights(function))
    slots = _before_and_after(row.slots, all_counted=counts_all_slots(function))
    return f"  {row.replicas:>8}   {weights:<22}   {slots}"


def _before_and_after(size: Bytes, *, all_counted: bool) -> str:
    counts = (size.unsharded, size.sharded)
    return " -> ".join(bytes_text(count, all_counted=all_counted) for count in counts)

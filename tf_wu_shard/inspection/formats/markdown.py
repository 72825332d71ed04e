"""The answer as Markdown, as code hosts show it: verdict, tables, what is left alone, memory.

Names come out of a file that anyone may have made. They stand in code spans, in which nothing is
markup; all other text has its punctuation escaped, so that it reads as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.answers.counted import (
    bytes_text,
    counts_all_gradients,
    counts_all_slots,
    counts_all_weights,
)
from tf_wu_shard.inspection.formats import page_tables
from tf_wu_shard.inspection.formats.page import about, verdict
from tf_wu_shard.inspection.formats.text import diff_about, diff_lines, printable
from tf_wu_shard.inspection.reading.function_names import short_name
from tf_wu_shard.report.report import Report
from tf_wu_shard.report.tables import AnyCell, Name, Table, cell_text

# A code host shows files of about half a megabyte; what is longer, JSON has.
_MOST_ROWS = 300
_MOST_CHAPTERS = 8

# What may be markup anywhere in a line (a code host has more than CommonMark: formulas, links that
# are no more than an address), and what may be at the start of one.
_MARKUP = re.compile(r"""([\\`*_{}\[\]()<>&|!#~$@]|:(?=//)|(?<=www)\.)""", re.IGNORECASE)
_AT_START = re.compile(r"^(\d*)([-+=]|[.)](?=\s|$))")


def as_markdown(inspection: Inspection) -> str:
    """The whole answer.

    Args:
        inspection: The answer as data.
    """
    return "\n\n".join(_parts(inspection))


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _AT_START.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", printable(text)))


def code(name: str) -> str:
    """A name in a code span that it cannot end; in a table's cell it cannot end that either."""
    shown = printable(name)
    if not shown.strip():
        return "(no name)"
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{space}{shown}{space}{fence}".replace("|", "\\|")


def _parts(inspection: Inspection) -> Iterator[str]:
    name = code(inspection.name) if inspection.name else "a model"
    yield f"# Weight-update sharding of {name}"
    yield (
        f"{escaped(inspection.form)}, {inspection.variables:,} variables:"
        f" {escaped(inspection.verdict)}. {escaped(inspection.how)}"
    )
    if inspection.notes:
        yield "**This answer is part of one:** the model was only partly read."
        yield _table(page_tables.notes(inspection.notes, "Not read", _MOST_ROWS))
    training = [function for function in inspection.functions if function.report is not None]
    chapters = training[:_MOST_CHAPTERS]
    rows = _MOST_ROWS // max(len(chapters), 1)
    for function in chapters:
        if function.report is not None:
            yield from _chapter(function, function.report, rows)
    yield "## All functions"
    if len(training) > len(chapters):
        yield f"{len(training) - len(chapters):,} more functions train."
    yield _table(page_tables.functions(inspection.functions, rows))


def _chapter(function: FunctionAnswer, report: Report, rows: int) -> Iterator[str]:
    yield f"## {escaped(short_name(function.name))}"
    yield f"**{escaped(verdict(report))}**"
    yield "\n".join(f"- {escaped(sentence)}" for sentence in about(function, report))
    yield _table(_sizes(function, report))
    for table in (
        page_tables.left_alone(function, report, rows),
        page_tables.variables(function, report, rows),
        page_tables.memory(function),
    ):
        yield f"### {table.title}"
        if table.note:
            yield escaped(table.note)
        yield _table(table) if table.rows else escaped(table.empty)
    if function.diff is not None:
        yield "### The graph, before and after"
        yield f"{escaped(diff_about(function.diff))}."
        if function.diff.lines:
            yield _diff([printable(line) for line in diff_lines(function.diff, rows)])
    if report.notes:
        yield "### Notes"
        yield "\n".join(f"- {escaped(note)}" for note in report.notes[:rows])


def _diff(lines: Sequence[str]) -> str:
    """Lines in a fence that none of them can end."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(longest + 1, 3)
    return "\n".join((f"{fence}diff", *lines, fence))


def _sizes(function: FunctionAnswer, report: Report) -> Table:
    kinds = (
        ("slots", report.slot_bytes_per_replica, counts_all_slots(function)),
        ("weights", report.weight_bytes_per_replica, counts_all_weights(function)),
        ("received in a step", report.wire_bytes, counts_all_gradients(function)),
    )
    return Table(
        title="",
        columns=(f"A replica of {report.num_replicas:,}", "Without sharding", "With sharding"),
        rows=tuple(
            (
                kind,
                bytes_text(size.unsharded, all_counted=whole),
                bytes_text(size.sharded, all_counted=whole),
            )
            for kind, size, whole in kinds
        ),
        numbers=("Without sharding", "With sharding"),
    )


def _table(table: Table) -> str:
    rule = ("---:" if column in table.numbers else "---" for column in table.columns)
    lines = [table.columns, tuple(rule)]
    lines += [tuple(map(_cell, row)) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: AnyCell) -> str:
    return code(cell.text) if isinstance(cell, Name) else escaped(cell_text(cell))

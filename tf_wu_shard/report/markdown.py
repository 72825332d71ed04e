"""The report as Markdown: the verdict, then a table of what was sharded and one of what was not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tf_wu_shard.report.report import Report, facts, headline, held_lines, slot_label


def as_markdown(report: Report) -> str:
    """The whole report.

    Args:
        report: The report. Its names are shown as they are; nothing in them is taken for Markdown
            or HTML.
    """
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"**{escaped(headline(report))}**"
    yield ""
    yield from _items([*held_lines(report), *facts(report), *report.notes])
    if report.variables:
        rows = [
            (
                variable.name,
                variable.layout,
                ", ".join(slot_label(s, variable.name) for s in variable.slots) or "none",
                str(variable.bucket),
                variable.gathered_in,
                variable.whole,
            )
            for variable in report.variables
        ]
        columns = ("sharded", "cut", "slots", "bucket", "gathered in", "whole")
        yield from _table(columns, rows)
    if report.left_alone:
        left = [(a.name, a.reason, a.where) for a in report.left_alone]
        yield from _table(("left alone", "reason", "at"), left)
    if report.emitted:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(report.emitted.items()))
        yield escaped(f"emitted {counts}; pass {report.pass_ms:.0f} ms of {report.trace_ms:.0f} ms")


def _items(texts: Iterable[str]) -> Iterator[str]:
    found = [f"- {escaped(text)}" for text in texts]
    if found:
        yield from (*found, "")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table; columns that say nothing in any row are left out."""
    kept = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    yield _row([columns[number] for number in kept])
    yield _row(["---"] * len(kept))
    for row in rows:
        yield _row([escaped(row[number]) for number in kept])
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    special = "\\`*_{}[]<>#|~"
    return "".join(f"\\{c}" if c in special else c for c in text.replace("\n", " "))

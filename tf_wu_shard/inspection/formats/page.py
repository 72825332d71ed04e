"""The answer as one HTML page: verdict, figures, a drawn update, and tables of all the rest.

Names come out of a file that anyone may have made: the page escapes them, what is no printing
character is written as an escape, and what is endless is cut, with a word on what was left out.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.answers.counted import (
    bytes_text,
    counts_all_gradients,
    counts_all_slots,
    counts_all_weights,
    what_is_counted,
)
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff
from tf_wu_shard.inspection.formats import page_tables
from tf_wu_shard.inspection.formats.text import diff_about, diff_lines, printable
from tf_wu_shard.inspection.formats.update_flow import update_flows
from tf_wu_shard.inspection.reading.function_names import short_name
from tf_wu_shard.report.charts import LineChart, Series
from tf_wu_shard.report.html import Listing, Page, Section, Tile, render
from tf_wu_shard.report.report import Bytes, Report, held_lines, percent_text, share_text
from tf_wu_shard.report.tables import Table

# More functions than that get a line in the list of all and no chapter.
_MOST_CHAPTERS = 8

# So many rows have all tables of one kind together, so that a page stays a few megabytes.
_MOST_ROWS = 1000


def as_html(inspection: Inspection) -> str:
    """The whole answer as the text of a page that loads nothing.

    Args:
        inspection: The answer as data.
    """
    return render(page(inspection))


def page(inspection: Inspection) -> Page:
    """The page as data.

    Args:
        inspection: The answer as data.
    """
    training = [function for function in inspection.functions if function.report is not None]
    chapters = training[:_MOST_CHAPTERS]
    rows = _MOST_ROWS // max(len(chapters), 1)
    name = printable(inspection.name) or "a model"
    return Page(
        title=f"Weight-update sharding of {name}",
        text=(
            f"{printable(inspection.form)}, {inspection.variables:,} variables:"
            f" {printable(inspection.verdict)}. {printable(inspection.how)}"
        ),
        sections=(
            *_partly(inspection, rows),
            *(_chapter(function, rows) for function in chapters),
            _functions(inspection, len(training) - len(chapters), rows),
        ),
    )


def _partly(inspection: Inspection, rows: int) -> tuple[Section, ...]:
    if not inspection.notes:
        return ()
    notes = page_tables.notes(inspection.notes, "Not read, or not looked at", rows)
    return (
        Section("Only partly read", "", "this answer is part of one", good=False, tables=(notes,)),
    )


def _functions(inspection: Inspection, more: int, rows: int) -> Section:
    count = sum(function.trains for function in inspection.functions)
    text = f"{more:,} more functions train; --function NAME looks at one." if more else ""
    return Section(
        title="All functions",
        text=text,
        verdict="" if count else inspection.verdict,
        good=None,
        tables=(page_tables.functions(inspection.functions, rows),),
    )


def _chapter(function: FunctionAnswer, rows: int) -> Section:
    report = function.report
    assert report is not None, "a chapter is about a plan"
    return Section(
        title=printable(short_name(function.name)),
        text=" ".join(about(function, report)),
        verdict=verdict(report),
        good=bool(report.variables),
        tiles=_tiles(function, report),
        lines=_curves(function),
        flows=() if function.picture is None else (update_flows(function.picture),),
        tables=tuple(_tables(function, report, rows)),
        listings=() if function.diff is None else (_listing(function.diff),),
    )


def _listing(diff: GraphDiff) -> Listing:
    return Listing(
        title="The graph, before and after",
        text=printable(f"{diff_about(diff)}."),
        lines=tuple(printable(line) for line in diff_lines(diff, _MOST_ROWS)),
    )


def verdict(report: Report) -> str:
    """The answer for a function in a line."""
    total = len(report.variables) + len(report.left_alone)
    if report.variables:
        return f"{share_text(report)} would be sharded over {report.num_replicas:,} replicas"
    if not total:
        return "nothing would be sharded: no weight was found that a summed gradient updates"
    return f"nothing would be sharded: {total:,} variables are left alone, each for a reason below"


def about(function: FunctionAnswer, report: Report) -> list[str]:
    """What a function does, in sentences: how it was traced, optimizers, replicas, what counts."""
    found = [f"{printable(function.name)} {printable(function.verdict)}."]
    if function.assumed:
        found.append(
            f"{_counted_text(function.assumed, 'gradient')} taken for summed, each where it enters"
            " its update."
        )
    counted = collections.Counter((u.optimizer, u.because) for u in function.updates)
    found += [
        f"{_counted_text(count, 'update')} {optimizer}: {printable(because)}."
        for (optimizer, because), count in counted.items()
    ]
    found += [f"{printable(held[:1].upper() + held[1:])}." for held in held_lines(report)]
    found += [f"Replicas: {printable(report.place)}."] if report.place else []
    return [*found, *what_is_counted(function, report)]


def _counted_text(count: int, thing: str) -> str:
    """Such as "1 update is" or "2 updates are"."""
    return f"1 {thing} is" if count == 1 else f"{count:,} {thing}s are"


def _tiles(function: FunctionAnswer, report: Report) -> tuple[Tile, ...]:
    total = len(report.variables) + len(report.left_alone)
    kinds = (
        ("slots of a replica", report.slot_bytes_per_replica, counts_all_slots(function)),
        ("weights of a replica", report.weight_bytes_per_replica, counts_all_weights(function)),
        ("received in a step", report.wire_bytes, counts_all_gradients(function)),
    )
    return (
        Tile(
            "elements sharded",
            percent_text(report.elements),
            f"{len(report.variables):,} of {total:,} variables",
        ),
        *(
            Tile(
                label,
                bytes_text(size.sharded, all_counted=whole),
                "the same without sharding"
                if size.sharded == size.unsharded
                else f"{bytes_text(size.unsharded, all_counted=whole)} without sharding",
            )
            for label, size, whole in kinds
        ),
    )


def _curves(function: FunctionAnswer) -> tuple[LineChart, ...]:
    rows = function.memory
    if not rows:
        return ()
    kinds = (("slots", [row.slots for row in rows]), ("weights", [row.weights for row in rows]))
    return tuple(
        LineChart(
            title=f"Bytes of {kind} on the fullest replica",
            x_label="replicas",
            series=(
                Series("without sharding", "baseline", tuple(s.unsharded for s in sizes)),
                Series("with sharding", "sharded", tuple(s.sharded for s in sizes)),
            ),
            logarithmic=True,
            note=_kept_whole(kind, [(r.replicas, s) for r, s in zip(rows, sizes, strict=True)]),
            x_ticks=tuple(str(row.replicas) for row in rows),
            in_bytes=True,
        )
        for kind, sizes in kinds
        if any(size.unsharded for size in sizes)
    )


def _kept_whole(kind: str, sizes: Sequence[tuple[int, Bytes]]) -> str:
    """Says for how many replicas on the plan saves nothing, if it ever does."""
    first = 0
    for replicas, size in reversed(sizes):
        if size.sharded != size.unsharded:
            break
        first = replicas
    if not first:
        return ""
    if first == sizes[0][0]:
        return f"The same with sharding: the plan keeps all {kind} whole."
    return f"For {first:,} replicas and more the plan keeps all {kind} whole."


def _tables(function: FunctionAnswer, report: Report, rows: int) -> list[Table]:
    found = [
        page_tables.left_alone(function, report, rows),
        page_tables.variables(function, report, rows),
        page_tables.memory(function),
    ]
    if report.notes:
        found.append(page_tables.notes(report.notes, "Notes", rows))
    return found

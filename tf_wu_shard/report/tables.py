"""Tables as HTML fragments: on a narrow page a row becomes a card, and what can be sorted says so.

Every text is escaped. Roles are given besides the elements, as a browser forgets what a table is
when its rows become cards.
"""

from __future__ import annotations

import dataclasses
import html
from typing import TypeAlias

from tf_wu_shard.report.page_script import FOLDED_ROWS


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text with the number that it is sorted by: what is not known counts as less than nothing."""

    text: str
    key: float = -1.0


@dataclasses.dataclass(frozen=True)
class Name:
    """Text that is a name out of the reader's own program."""

    text: str


AnyCell: TypeAlias = str | Cell | Name


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text under a title; `empty` is said instead when there are none.

    Attributes:
        title: Above the table; "" where it needs none.
        columns: Their names.
        rows: As many cells each as there are columns.
        empty: What it means that there are no rows.
        note: Below the title.
        numbers: The columns that are aligned, and sorted, as numbers: their cells are `Cell`s.
        sortable: Whether the reader may sort it; a long one is then folded, too.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[AnyCell, ...], ...]
    empty: str = "none"
    note: str = ""
    numbers: tuple[str, ...] = ()
    sortable: bool = False


def render_table(table: Table) -> str:
    """Returns the title and the table."""
    title = f"<h3>{html.escape(table.title)}</h3>\n" if table.title else ""
    label = f' aria-label="{html.escape(table.title)}"' if table.title else ""
    note = f'<p class="soft">{html.escape(table.note)}</p>\n' if table.note else ""
    if not table.rows:
        return f'{title}<p class="soft">{html.escape(table.empty)}</p>'
    head = "".join(_head(column, table) for column in table.columns)
    rows = "\n".join(
        f'<tr role="row">{"".join(_cell(c, cell, table) for c, cell in pairs)}</tr>'
        for pairs in (zip(table.columns, row, strict=True) for row in table.rows)
    )
    # Cells with numbers are short: on a narrow page two of them share a line.
    kinds = ("sortable",) * table.sortable + ("compact",) * bool(table.numbers)
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    more = _more(len(table.rows)) if table.sortable and len(table.rows) > FOLDED_ROWS else ""
    return (
        f'{title}{note}<div class="table"><table role="table"{kind}{label}>\n'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody>\n</table>{more}</div>'
    )


def _more(count: int) -> str:
    # Shown by the script: without it the table is not folded.
    return (
        f'<button class="more" type="button" hidden data-all="Show all {count:,}"'
        f' data-fewer="Show the first {FOLDED_ROWS}"></button>'
    )


def _head(column: str, table: Table) -> str:
    kind = ' class="number"' if column in table.numbers else ""
    if not table.sortable:
        return f'<th role="columnheader" scope="col"{kind}>{html.escape(column)}</th>'
    return (
        f'<th role="columnheader" scope="col"{kind} aria-sort="none"><button type="button">'
        f"{html.escape(column)}</button></th>"
    )


def cell_text(cell: AnyCell) -> str:
    """The text of a cell of any kind."""
    return cell if isinstance(cell, str) else cell.text


def _cell(column: str, cell: AnyCell, table: Table) -> str:
    """On a narrow page the columns stand below each other and the cell names its own."""
    kind = ' class="number"' if column in table.numbers else ""
    key = f' data-key="{cell.key:.17g}"' if isinstance(cell, Cell) else ""
    text = html.escape(cell_text(cell))
    if isinstance(cell, Name):
        text = text.replace("/", "/<wbr>")  # where a long name may go on in a new line
    return (
        f'<td role="cell"{kind} data-column="{html.escape(column)}"{key}><span>{text}</span></td>'
    )

"""A report as one HTML page that needs no network and no other file.

Takes a page as data (sections of text, tiles, charts, tables) and returns its text; it knows
nothing of sharding. Every text that comes in is escaped.
"""

from __future__ import annotations

import dataclasses
import html

from tf_wu_shard.report.charts import BarChart, LineChart, render_bars, render_lines
from tf_wu_shard.report.page_style import STYLE


@dataclasses.dataclass(frozen=True)
class Tile:
    """A figure that should be seen first; `note` says what to hold it against."""

    label: str
    value: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text under a title; `empty` is said instead when there are none."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str = "none"
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """One chapter: verdict first, then tiles, charts and tables."""

    title: str
    text: str
    verdict: str
    good: bool
    tiles: tuple[Tile, ...] = ()
    lines: tuple[LineChart, ...] = ()
    bars: tuple[BarChart, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclasses.dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    text: str
    sections: tuple[Section, ...]


def render(page: Page) -> str:
    """Returns the page as HTML text, to be written as UTF-8."""
    body = "\n".join(_section(section) for section in page.sections)
    title = html.escape(page.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<p>{html.escape(page.text)}</p>\n{body}\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    tiles = "".join(
        f'<div class="tile"><span>{html.escape(tile.label)}</span>'
        f"<b>{html.escape(tile.value)}</b><span>{html.escape(tile.note)}</span></div>"
        for tile in section.tiles
    )
    lines = "\n".join(render_lines(chart) for chart in section.lines)
    bars = "\n".join(render_bars(chart) for chart in section.bars)
    tables = "\n".join(_table(table) for table in section.tables)
    return (
        f'<section>\n<h2>{html.escape(section.title)}</h2>\n<p class="soft">'
        f"{html.escape(section.text)}</p>\n"
        f'<div class="verdict{"" if section.good else " bad"}">{html.escape(section.verdict)}</div>'
        f'\n<div class="tiles">{tiles}</div>\n<div class="figures">\n{lines}\n</div>\n'
        f'<div class="figures small">\n{bars}\n</div>\n{tables}\n</section>'
    )


def _table(table: Table) -> str:
    title = f"<h3>{html.escape(table.title)}</h3>\n"
    note = f'<p class="soft">{html.escape(table.note)}</p>\n' if table.note else ""
    if not table.rows:
        return f'{title}<p class="soft">{html.escape(table.empty)}</p>'
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "\n".join(
        "<tr>" + "".join(map(_cell, table.columns, row)) + "</tr>" for row in table.rows
    )
    return (
        f"{title}{note}<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    )


def _cell(column: str, text: str) -> str:
    """On a narrow page the columns stand below each other and the cell names its own."""
    return f'<td data-column="{html.escape(column)}">{html.escape(text)}</td>'

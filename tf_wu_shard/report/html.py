"""A report as one HTML page that needs no network and no other file.

Takes a page as data (sections of text, tiles, charts, tables) and returns its text; it knows
nothing of sharding. Every text that comes in is escaped, and a Content-Security-Policy besides
lets nothing be loaded and no script run but the page's own.
"""

from __future__ import annotations

import dataclasses
import html

from tf_wu_shard.report.charts import BarChart, LineChart, render_bars, render_lines
from tf_wu_shard.report.flow_chart import Flows, render_flows
from tf_wu_shard.report.gantt import Gantt, render_gantt
from tf_wu_shard.report.page_script import SCRIPT, script_digest
from tf_wu_shard.report.page_style import FLOW_STYLE, STYLE
from tf_wu_shard.report.tables import Table, render_table


@dataclasses.dataclass(frozen=True)
class Tile:
    """A figure that should be seen first; `note` says what to hold it against."""

    label: str
    value: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Listing:
    """Lines to be read as they are; those that begin with + or - are a diff's.

    Attributes:
        title: Above it.
        text: What it is.
        lines: The lines; () for the text alone.
    """

    title: str
    text: str
    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Section:
    """One chapter: verdict first, then tiles, charts, flows and tables.

    Attributes:
        title: Above it.
        text: What it is about.
        verdict: The answer in a line; "" where there is no question.
        good: Whether that is good news; None where it is neither.
        tiles: Figures to be seen first.
        lines: Curves.
        bars: Bars.
        gantts: Who did what when.
        flows: Steps and what flows between them.
        tables: All the rest.
        listings: What is no table.
    """

    title: str
    text: str
    verdict: str
    good: bool | None
    tiles: tuple[Tile, ...] = ()
    lines: tuple[LineChart, ...] = ()
    bars: tuple[BarChart, ...] = ()
    gantts: tuple[Gantt, ...] = ()
    flows: tuple[Flows, ...] = ()
    tables: tuple[Table, ...] = ()
    listings: tuple[Listing, ...] = ()


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
    moves = any(table.sortable for section in page.sections for table in section.tables)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    policy += f"; script-src '{script_digest()}'" if moves else ""
    script = f"<script>{SCRIPT}</script>\n" if moves else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}{FLOW_STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{title}</h1>\n<p>{html.escape(page.text)}</p>\n{body}\n</main>\n"
        f"{script}</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    tiles = "".join(
        f'<div class="tile"><span>{html.escape(tile.label)}</span>'
        f"<b>{html.escape(tile.value)}</b><span>{html.escape(tile.note)}</span></div>"
        for tile in section.tiles
    )
    parts = (
        _block("tiles", tiles),
        _block("figures", "\n".join(render_lines(chart) for chart in section.lines)),
        _block("figures small", "\n".join(render_bars(chart) for chart in section.bars)),
        _block("figures wide", "\n".join(render_gantt(chart) for chart in section.gantts)),
        "\n".join(render_flows(flows) for flows in section.flows),
        "\n".join(render_table(table) for table in section.tables),
        "\n".join(map(_listing, section.listings)),
    )
    mood = {True: "", False: " bad", None: " plain"}[section.good]
    text = f'<p class="soft">{html.escape(section.text)}</p>\n' if section.text else ""
    verdict = f'<div class="verdict{mood}">{html.escape(section.verdict)}</div>\n'
    return (
        f"<section>\n<h2>{html.escape(section.title)}</h2>\n"
        + (verdict if section.verdict else "")
        + text
        + "\n".join(part for part in parts if part)
        + "\n</section>"
    )


def _listing(listing: Listing) -> str:
    kinds = {"+": "ins", "-": "del"}
    shown = []
    for line in listing.lines:
        kind = kinds.get(line[:1])
        text = html.escape(line)
        shown.append(f"<{kind}>{text}</{kind}>" if kind else text)
    lines = "\n".join(shown)
    return (
        f"<h3>{html.escape(listing.title)}</h3>\n"
        f'<p class="soft">{html.escape(listing.text)}</p>\n'
        + (f"<pre>{lines}</pre>\n" if shown else "")
    )


def _block(kind: str, body: str) -> str:
    return f'<div class="{kind}">\n{body}\n</div>' if body else ""

"""What flows through a few dozen steps, as an HTML fragment: a line a step, the edges beside them.

The edges are inline SVG in a gutter of fixed width, stretched to the height of the lines; the words
are HTML, so that they keep their size and their place at any width. Nothing is loaded, every text
is escaped. The steps are in an order in which each comes after what flows into it.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Collection, Sequence
from typing import Literal

# What a line is: it gives the dot and the words their weight.
Tone = Literal["value", "exchange", "step", "write", "heading"]

_LANE = 16
_LEFT = 10


@dataclasses.dataclass(frozen=True)
class FlowRow:
    """One line.

    Attributes:
        tone: What it is; a heading has no dot and no edges.
        title: What happens.
        name: Which one it is, such as an op's name.
        value: What it hands on.
        size: How large that is.
        lane: In which column of the gutter its dot is, from 0.
        inside: Whether it belongs to the part that stands on a ground of its own.
    """

    tone: Tone
    title: str
    name: str = ""
    value: str = ""
    size: str = ""
    lane: int = 0
    inside: bool = False


@dataclasses.dataclass(frozen=True)
class FlowEdge:
    """What one line hands to a later one.

    Attributes:
        source: The number of the line it comes from.
        target: The number of the line it goes to.
        stored: Whether it goes by way of a variable.
    """

    source: int
    target: int
    stored: bool = False


@dataclasses.dataclass(frozen=True)
class FlowChart:
    """Steps and what flows between them."""

    title: str
    rows: tuple[FlowRow, ...]
    edges: tuple[FlowEdge, ...]


@dataclasses.dataclass(frozen=True)
class Flows:
    """Charts to be compared, side by side, under a title and a text."""

    title: str
    text: str
    charts: tuple[FlowChart, ...]


def render_flows(flows: Flows) -> str:
    """Returns the charts with what stands above them."""
    return (
        f"<h3>{html.escape(flows.title)}</h3>\n"
        f'<p class="soft">{html.escape(flows.text)}</p>\n<div class="figures">\n'
        + "\n".join(render_flow(chart) for chart in flows.charts)
        + "\n</div>"
    )


def render_flow(chart: FlowChart) -> str:
    """Returns the chart as a `<figure>`."""
    lanes = 1 + max((row.lane for row in chart.rows), default=0)
    width = 2 * _LEFT + _LANE * (lanes - 1)
    # Lines that go by more than one way are drawn first, so that dots and short edges lie on top.
    edges = sorted(chart.edges, key=lambda edge: edge.source - edge.target)
    paths = "".join(_path(edge, chart.rows) for edge in edges)
    lines = "".join(_line(row) for row in chart.rows)
    return (
        f'<figure class="flow"><figcaption>{html.escape(chart.title)}</figcaption>'
        f'<div class="steps" style="--width:{width}"><svg viewBox="0 0 {width}'
        f' {max(len(chart.rows), 1)}" preserveAspectRatio="none" aria-hidden="true">{paths}</svg>'
        f"<ol>{lines}</ol></div></figure>"
    )


def _line(row: FlowRow) -> str:
    name = html.escape(row.name)
    kind = f"{row.tone} inside" if row.inside else row.tone
    return (
        f'<li class="{kind}" style="--at:{_x(row.lane)}"><b>{html.escape(row.title)}</b>'
        f'<span title="{name}">{name}</span><i>{html.escape(row.value)}</i>'
        f"<em>{html.escape(row.size)}</em></li>"
    )


def _path(edge: FlowEdge, rows: Sequence[FlowRow]) -> str:
    source, target = rows[edge.source], rows[edge.target]
    start, end = _x(source.lane), _x(target.lane)
    top, bottom = edge.source + 0.5, edge.target + 0.5
    passed = {row.lane for row in rows[edge.source + 1 : edge.target] if row.tone != "heading"}
    way = _free_way(source.lane, target.lane, passed)
    turn = min(1.0, (bottom - top) / 2)
    path = (
        f"M{start} {top}C{start} {top + turn / 2} {way} {top + turn / 2} {way} {top + turn}"
        f"V{bottom - turn}C{way} {bottom - turn / 2} {end} {bottom - turn / 2} {end} {bottom}"
    )
    kind = ' class="stored"' if edge.stored else ""
    return f'<path{kind} d="{path}"/>'


def _free_way(source: int, target: int, passed: Collection[int]) -> float:
    """Where an edge runs down: a lane of its own ends without a dot on it, else between lanes."""
    for lane in (target, source):
        if lane not in passed:
            return _x(lane)
    return _x(target) + _LANE / 2 if target <= source else _x(target) - _LANE / 2


def _x(lane: int) -> int:
    return _LEFT + _LANE * lane

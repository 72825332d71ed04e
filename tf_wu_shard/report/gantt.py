"""Gantt charts as HTML fragments: who did what when, a row each, on one axis of time.

As `charts`: inline SVG stretched to the width of the page, words in HTML, colours by role.
"""

from __future__ import annotations

import dataclasses
import html
from typing import Literal

# What somebody did: work, work that was made longer, or waiting for others.
Doing = Literal["work", "delay", "wait"]

_WORDS: dict[Doing, str] = {"work": "works", "delay": "is delayed", "wait": "waits for others"}

_HEIGHT = 22
_GAP = 6


@dataclasses.dataclass(frozen=True)
class Span:
    """What somebody did from one second to another."""

    doing: Doing
    begin: float
    end: float


@dataclasses.dataclass(frozen=True)
class Lane:
    """Everything that one of them did."""

    label: str
    spans: tuple[Span, ...]


@dataclasses.dataclass(frozen=True)
class Gantt:
    """Lanes over a common axis.

    Attributes:
        title: Above the chart.
        lanes: From top to bottom.
        end: Where the axis ends, in seconds; it begins at 0, and what is later is cut off.
        note: Below the chart.
    """

    title: str
    lanes: tuple[Lane, ...]
    end: float
    note: str = ""


def render_gantt(chart: Gantt) -> str:
    """Returns the chart as a `<figure>`."""
    height = len(chart.lanes) * (_HEIGHT + _GAP)
    drawn = "".join(
        _rectangle(span, chart.end, place * (_HEIGHT + _GAP))
        for place, lane in enumerate(chart.lanes)
        for span in lane.spans
        if span.begin < chart.end and span.end > span.begin
    )
    labels = "".join(f"<span>{html.escape(lane.label)}</span>" for lane in chart.lanes)
    used = {span.doing for lane in chart.lanes for span in lane.spans}
    legend = "".join(
        f'<span><i class="{doing}"></i>{word}</span>'
        for doing, word in _WORDS.items()
        if doing in used
    )
    note = f"<p>{html.escape(chart.note)}</p>" if chart.note else ""
    return (
        f"<figure><figcaption>{html.escape(chart.title)}</figcaption>"
        f'<div class="legend gantt-legend">{legend}</div>'
        f'<div class="gantt"><div class="lanes">{labels}</div>'
        f'<svg viewBox="0 0 1000 {height}" height="{height}" preserveAspectRatio="none" role="img"'
        f' aria-label="{html.escape(chart.title)}">{drawn}</svg></div>'
        f'<div class="x gantt-x"><span>0</span><span>{1e3 * chart.end:.0f} ms</span></div>'
        f"{note}</figure>"
    )


def _rectangle(span: Span, end: float, top: int) -> str:
    left = 1000 * max(0.0, span.begin) / end
    width = 1000 * min(span.end, end) / end - left
    return (
        f'<rect class="{span.doing}" x="{left:.2f}" y="{top}" width="{width:.2f}"'
        f' height="{_HEIGHT}"/>'
    )

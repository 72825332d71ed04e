"""Line and bar charts as HTML fragments, with nothing to install and nothing to load.

The lines are inline SVG stretched to the width of the page, the words around them are HTML, so
that at any width the text keeps its size. Colours come from the page (page_style.py), by role.
Every text is escaped.
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import Literal

from tf_wu_shard.report.quantities import byte_text, byte_tick

# Who a line or bar belongs to; the page gives each its colour and stroke, light and dark.
Role = Literal["baseline", "sharded", "other"]


@dataclasses.dataclass(frozen=True)
class Series:
    """One curve: its values at x = 1, 2, ..."""

    label: str
    role: Role
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class LineChart:
    """Curves over a common x axis.

    Attributes:
        title: Above the chart.
        x_label: What x counts.
        series: At least one; drawn in this order, so the last lies on top.
        logarithmic: Whether y is; values that are not positive are then left out of the curve.
        note: Below the chart.
        x_ticks: What x is at each value; empty where it counts them. With it, each x can be
            pointed at or tabbed to, and shows its values exactly.
        in_bytes: Whether the values are bytes.
        x_ends: What x is at the first and the last value; empty where it counts them.
    """

    title: str
    x_label: str
    series: tuple[Series, ...]
    logarithmic: bool = False
    note: str = ""
    x_ticks: tuple[str, ...] = ()
    in_bytes: bool = False
    x_ends: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Bar:
    """One bar; `text` is its value as people read it."""

    label: str
    role: Role
    value: float
    text: str


@dataclasses.dataclass(frozen=True)
class BarChart:
    """Horizontal bars from zero, on one common scale."""

    title: str
    bars: tuple[Bar, ...]
    note: str = ""


def render_bars(chart: BarChart) -> str:
    """Returns the chart as a `<figure>`."""
    largest = max((bar.value for bar in chart.bars), default=0.0) or 1.0
    rows = "".join(
        f'<div class="bar"><span>{html.escape(bar.label)}</span>'
        f'<span class="track"><i class="{bar.role}" style="width:{100 * bar.value / largest:.2f}%">'
        f"</i></span><b>{html.escape(bar.text)}</b></div>"
        for bar in chart.bars
    )
    return _figure(chart.title, f'<div class="bars">{rows}</div>', chart.note)


def render_lines(chart: LineChart) -> str:
    """Returns the chart as a `<figure>`."""
    shown = [
        value
        for series in chart.series
        for value in series.values
        if math.isfinite(value) and (value > 0 or not chart.logarithmic)
    ]
    if not shown:
        return _figure(chart.title, "<p>nothing to draw: every value is zero</p>", chart.note)
    ticks = log_ticks(min(shown), max(shown)) if chart.logarithmic else linear_ticks(shown)
    scale = _Scale(ticks[0], ticks[-1], chart.logarithmic)
    steps = max(len(series.values) for series in chart.series)
    grid = "".join(
        f'<line x1="0" x2="1000" y1="{scale(tick):.1f}" y2="{scale(tick):.1f}"/>' for tick in ticks
    )
    curves = "".join(_curve(series, scale, steps) for series in chart.series)
    labels = "".join(
        f'<span style="top:{scale(tick) / 10:.1f}%">'
        f"{byte_tick(tick) if chart.in_bytes else f'{tick:.3g}'}</span>"
        for tick in ticks
    )
    legend = "".join(
        f'<span><i class="{series.role}"></i>{html.escape(series.label)}</span>'
        for series in chart.series
    )
    body = (
        f'<div class="legend">{legend}</div><div class="plot"><div class="y">{labels}</div>'
        f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img"'
        f' aria-label="{html.escape(chart.title)}"><g class="grid">{grid}</g>{curves}</svg>'
        f"{_readings(chart)}</div>{_x_axis(chart, steps)}"
    )
    return _figure(chart.title, body, chart.note)


def _x_axis(chart: LineChart, steps: int) -> str:
    label = html.escape(chart.x_label)
    if not chart.x_ticks:
        first, last = map(html.escape, chart.x_ends or ("1", str(steps)))
        return f'<div class="x"><span>{first}</span><span>{label}</span><span>{last}</span></div>'
    ticks = "".join(
        f'<span style="left:{_percent(index, len(chart.x_ticks)):.2f}%">{html.escape(tick)}</span>'
        for index, tick in enumerate(chart.x_ticks)
    )
    return f'<div class="ticks">{ticks}</div><div class="x-label">{label}</div>'


def _readings(chart: LineChart) -> str:
    """For each x a strip over the drawing that shows the values when pointed at or focused."""
    found = []
    for index, tick in enumerate(chart.x_ticks):
        left = _percent(index, len(chart.x_ticks))
        values = [(s, s.values[index]) for s in chart.series if index < len(s.values)]
        lines = "".join(
            f'<span><i class="{series.role}"></i>{html.escape(series.label)}'
            f"<b>{_exact(value, chart.in_bytes)}</b></span>"
            for series, value in values
        )
        said = "; ".join(f"{s.label} {_exact(value, chart.in_bytes)}" for s, value in values)
        side = "before" if left > 50 else "after"
        found.append(
            f'<span class="reading {side}" tabindex="0" role="img"'
            f' style="left:{left:.2f}%;--at:{left / 100:.2f}"'
            f' aria-label="{html.escape(f"{tick} {chart.x_label}: {said}")}"><span class="tip">'
            f"<strong>{html.escape(f'{tick} {chart.x_label}')}</strong>{lines}</span></span>"
        )
    return f'<div class="readings">{"".join(found)}</div>' if found else ""


def _exact(value: float, in_bytes: bool) -> str:
    if not in_bytes:
        return f"{value:g}"
    return f"{byte_text(value)}" if value < 1000 else f"{byte_text(value)} ({value:,.0f} B)"


def _percent(index: int, count: int) -> float:
    return 100 * index / max(count - 1, 1)


def linear_ticks(values: Sequence[float]) -> tuple[float, ...]:
    """Returns three to seven round numbers, evenly spaced, that enclose the finite values."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    spacing = next(unit * power for unit in (1, 2, 5, 10) if span / (unit * power) <= 5)
    first, last = math.floor(low / spacing), math.ceil(high / spacing)
    return tuple(index * spacing for index in range(first, max(last, first + 2) + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Returns powers of ten, at most seven gaps, that enclose low..high, both positive."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    stride = math.ceil((last - first) / 7)
    return tuple(10.0**power for power in range(first, last + stride, stride))


@dataclasses.dataclass(frozen=True)
class _Scale:
    """Maps a value to 0 (top) .. 1000 (bottom) of the drawing."""

    low: float
    high: float
    logarithmic: bool

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return 1000 * (high - value) / (high - low)


def _curve(series: Series, scale: _Scale, steps: int) -> str:
    """Returns the curve, broken where a value cannot be shown."""
    runs: list[list[str]] = [[]]
    for index, value in enumerate(series.values):
        if not math.isfinite(value) or (scale.logarithmic and value <= 0):
            runs.append([])
            continue
        runs[-1].append(f"{1000 * index / max(steps - 1, 1):.1f},{scale(value):.1f}")
    return "".join(
        # A lone point has no length; drawn twice, its round cap shows.
        f'<polyline class="{series.role}" points="{" ".join(run if len(run) > 1 else run * 2)}"/>'
        for run in runs
        if run
    )


def _figure(title: str, body: str, note: str) -> str:
    caption = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{body}{caption}</figure>"

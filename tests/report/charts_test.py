"""Claims about report/charts.py: scales enclose the data, curves go where the data are."""

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_wu_shard.report.charts import (
    Bar,
    BarChart,
    LineChart,
    Series,
    linear_ticks,
    log_ticks,
    render_bars,
    render_lines,
)

_finite = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-6)


def _points(page: str, role: str) -> list[list[tuple[float, float]]]:
    curves = re.findall(rf'<polyline class="{role}" points="([^"]*)"', page)
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in curve.split())]
        for curve in curves
    ]


@given(st.lists(_finite, min_size=1, max_size=20))
def test_linear_ticks_enclose_the_values_at_equal_distances(values: list[float]) -> None:
    ticks = linear_ticks(values)
    slack = 1e-9 * (ticks[-1] - ticks[0])
    assert ticks[0] - slack <= min(values)
    assert max(values) <= ticks[-1] + slack
    assert 3 <= len(ticks) <= 8
    gaps = [after - before for before, after in itertools.pairwise(ticks)]
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-3)


@given(st.floats(1e-12, 1e6), st.floats(1, 1e12))
def test_log_ticks_are_powers_of_ten_that_enclose_the_values(low: float, factor: float) -> None:
    ticks = log_ticks(low, low * factor)
    assert ticks[0] <= low * (1 + 1e-12)
    assert low * factor <= ticks[-1] * (1 + 1e-12)
    assert 2 <= len(ticks) <= 9
    assert all(math.log10(tick) == pytest.approx(round(math.log10(tick))) for tick in ticks)


def test_a_curve_runs_from_edge_to_edge_and_falls_where_values_fall() -> None:
    page = render_lines(LineChart("Loss", "step", (Series("run", "sharded", (4.0, 2.0, 1.0)),)))
    [curve] = _points(page, "sharded")
    assert [x for x, _ in curve] == [0.0, 500.0, 1000.0]
    # The drawing's y grows downwards.
    assert curve[0][1] < curve[1][1] < curve[2][1]


def test_equal_curves_lie_on_each_other() -> None:
    losses = (3.0, 2.5, 2.0)
    page = render_lines(
        LineChart("Loss", "step", (Series("a", "baseline", losses), Series("b", "sharded", losses)))
    )
    assert _points(page, "baseline") == _points(page, "sharded")
    # Baseline first, or the wide stroke hides the narrow one.
    assert page.index('polyline class="baseline"') < page.index('polyline class="sharded"')


def test_a_logarithmic_curve_breaks_at_zero_and_at_nan() -> None:
    values = (1e-7, 1e-6, 0.0, 1e-5, math.nan, 1e-6)
    page = render_lines(LineChart("Gap", "step", (Series("a", "other", values),), logarithmic=True))
    assert [len(curve) for curve in _points(page, "other")] == [2, 2, 2]


def test_a_chart_of_nothing_but_zeros_says_so_on_a_log_scale() -> None:
    page = render_lines(LineChart("Gap", "step", (Series("a", "other", (0.0,)),), logarithmic=True))
    assert "every value is zero" in page
    assert "<svg" not in page


def test_bars_have_lengths_in_proportion() -> None:
    page = render_bars(
        BarChart("Slots", (Bar("a", "baseline", 8, "8 B"), Bar("b", "sharded", 1, "1 B")))
    )
    assert re.findall(r"width:([\d.]+)%", page) == ["100.00", "12.50"]


def test_charts_are_well_formed_and_escape_their_text() -> None:
    evil = '<script>"&'
    line = LineChart(evil, evil, (Series(evil, "other", (1.0, 2.0)),), note=evil)
    bars = BarChart(evil, (Bar(evil, "other", 1, evil),), note=evil)
    for page in (render_lines(line), render_bars(bars)):
        assert "<script" not in page
        assert evil in "".join(ElementTree.fromstring(page).itertext())


def test_each_x_that_has_a_name_tells_its_values_to_who_points_at_it_or_tabs_to_it() -> None:
    series = (
        Series("before", "baseline", (4096.0, 4096.0)),
        Series("after", "sharded", (8.0, 4.0)),
    )
    text = render_lines(
        LineChart("t", "replicas", series, logarithmic=True, x_ticks=("2", "4"), in_bytes=True)
    )
    assert text.count('tabindex="0"') == 2
    assert 'aria-label="4 replicas: before 4.10 kB (4,096 B); after 4 B"' in text
    assert ">10 kB</span>" in text and ">1 B</span>" in text

"""Gantt charts: rectangles on one axis, cut off at its end, with every text escaped."""

from __future__ import annotations

import re

from tf_wu_shard.report.gantt import Gantt, Lane, Span, render_gantt


def test_spans_lie_on_one_axis_and_end_with_it() -> None:
    spans = (Span("work", 0, 1), Span("wait", 1, 1), Span("delay", 1, 9), Span("work", 9, 10))
    drawn = render_gantt(Gantt("all", (Lane("a", spans), Lane("b", spans[:1])), end=4.0))
    found = re.findall(r'<rect class="(\w+)" x="([\d.]+)" y="(\d+)" width="([\d.]+)"', drawn)
    assert found == [
        ("work", "0.00", "0", "250.00"),
        ("delay", "250.00", "0", "750.00"),
        ("work", "0.00", "28", "250.00"),
    ]
    assert "4000 ms" in drawn


def test_texts_are_escaped() -> None:
    lane = Lane("<b>", (Span("work", 0, 1),))
    drawn = render_gantt(Gantt("<i>", (lane,), end=1.0, note="<u>"))
    assert not {"<b>", "<i>", "<u>"} & set(re.findall(r"<\w+>", drawn))

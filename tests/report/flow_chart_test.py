"""Claims about report/flow_chart.py: where lines stand, and where edges run."""

from __future__ import annotations

import re

from tf_wu_shard.report.flow_chart import FlowChart, FlowEdge, FlowRow, Tone, render_flow


def chart(edges: tuple[FlowEdge, ...], lanes: tuple[int, ...], tone: Tone = "step") -> str:
    return render_flow(FlowChart("", tuple(FlowRow(tone, "", lane=lane) for lane in lanes), edges))


def ways(text: str) -> list[float]:
    """Where each edge runs down."""
    return [float(c[1]) for c in re.findall(r'd="M\S+ \S+C\S+ \S+ (\S+) \S+ (\S+) \S+V', text)]


def test_the_drawing_is_as_high_as_there_are_lines_and_as_wide_as_its_lanes() -> None:
    assert 'viewBox="0 0 52 3"' in chart((), (0, 1, 2))


def test_an_edge_goes_from_the_middle_of_a_line_to_the_middle_of_another() -> None:
    (path,) = re.findall(r'd="([^"]*)"', chart((FlowEdge(0, 2),), (0, 1, 2)))
    assert path.startswith("M10 0.5") and path.endswith("42 2.5")


def test_an_edge_runs_down_its_targets_lane_where_no_dot_is_in_the_way() -> None:
    assert ways(chart((FlowEdge(0, 2),), (0, 1, 2))) == [42]


def test_else_it_runs_down_its_sources() -> None:
    assert ways(chart((FlowEdge(0, 2),), (0, 1, 1))) == [10]


def test_else_between_the_lanes() -> None:
    assert ways(chart((FlowEdge(0, 3),), (0, 0, 1, 1))) == [18]
    assert ways(chart((FlowEdge(0, 2),), (0, 0, 0))) == [18]


def test_a_heading_is_in_nobodys_way() -> None:
    rows = (FlowRow("step", ""), FlowRow("heading", "", lane=1), FlowRow("step", "", lane=1))
    assert ways(render_flow(FlowChart("", rows, (FlowEdge(0, 2),)))) == [26]


def test_what_goes_by_way_of_a_variable_looks_different() -> None:
    assert 'class="stored"' in chart((FlowEdge(0, 1, stored=True),), (0, 0))
    assert 'class="stored"' not in chart((FlowEdge(0, 1),), (0, 0))

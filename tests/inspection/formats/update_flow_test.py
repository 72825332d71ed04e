"""Claims about a drawn update: the same ops before and after, and what stands around them."""

from __future__ import annotations

import dataclasses

import pytest

from tests.inspection.made_answers import chain, op, picture
from tf_wu_shard.inspection.formats.update_flow import update_flows
from tf_wu_shard.report.flow_chart import FlowChart


def titles(chart: FlowChart) -> list[str]:
    return [row.title for row in chart.rows]


def test_the_gradient_is_summed_whole_before_and_scattered_after() -> None:
    before, after = update_flows(picture()).charts
    ops = ["the new weight", "Mul", "Mul", "AssignSubVariableOp"]
    assert titles(before) == ["gradient", "all-reduce", *ops, "weight"]
    assert titles(after) == ["gradient", "reduce-scatter", *ops, "all-gather", "weight"]
    assert {row.size for row in before.rows} == {"8.19 kB", ""}
    assert [row.size for row in after.rows] == [
        *("8.19 kB", "1.02 kB", "", "1.02 kB", "1.02 kB", "1.02 kB", "8.19 kB", "8.19 kB")
    ]


def test_a_sum_that_the_graph_has_is_named_and_one_that_it_has_not_is_said() -> None:
    flows = update_flows(picture("w"))
    assert flows.charts[0].rows[1].name == "w" and "one device" not in flows.text
    (gradient,) = picture().gradients
    bare = dataclasses.replace(picture(), gradients=(dataclasses.replace(gradient, sum_op=""),))
    flows = update_flows(bare)
    assert flows.charts[0].rows[1].name == "the whole sum" and "one device" in flows.text


def test_edges_are_what_ops_read_and_go_down() -> None:
    _, after = update_flows(picture()).charts
    assert [(e.source, e.target) for e in after.edges] == [
        *((0, 1), (1, 3), (3, 4), (4, 5), (5, 6), (6, 7))
    ]


def test_a_weight_in_shards_is_gathered_where_the_step_reads_it() -> None:
    _, after = update_flows(
        dataclasses.replace(picture(), weight_in_shards=True, in_shards=("w",))
    ).charts
    assert titles(after)[-3:] == ["weight, in shards", "all-gather", "weight"]
    assert after.rows[-2].name == "where it is read"
    assert [row.value for row in after.rows if row.tone == "heading"] == ["stays in shards"]


def test_an_owner_gets_the_gradient_and_sends_the_weight() -> None:
    _, after = update_flows(dataclasses.replace(picture(), owned=True)).charts
    assert titles(after)[1] == "reduce to the owner"
    assert titles(after)[-2] == "broadcast from the owner"


def test_two_writes_of_one_variable_are_told_apart() -> None:
    ops = (op("a", 0, part=0, writes=True), op("b", 1, part=1, writes=True))
    before, _ = update_flows(picture(ops=ops)).charts
    headings = [row.title for row in before.rows if row.tone == "heading"]
    assert headings == ["the new weight, write 1 of 2", "the new weight, write 2 of 2"]


@pytest.mark.parametrize("count", [13, 400])
def test_a_long_update_is_drawn_by_its_ends(count: int) -> None:
    before, after = update_flows(picture(ops=chain("w", count))).charts
    for chart in (before, after):
        assert len(chart.rows) < 20 and f"{count - 8} ops" in titles(chart)
        assert all(edge.source < edge.target for edge in chart.edges)


def test_many_writes_are_drawn_by_the_first() -> None:
    ops = tuple(op("a", i, part=i, of=f"s{i}", writes=True) for i in range(40))
    _, after = update_flows(picture(ops=ops)).charts
    assert "35 more writes" in titles(after) and len(after.rows) < 20


def test_shapes_that_are_not_known_are_not_told() -> None:
    ops = tuple(dataclasses.replace(o, whole=None, shard=None) for o in picture().ops)
    before, _ = update_flows(picture(ops=ops)).charts
    assert {row.value for row in before.rows if row.tone in ("step", "write")} == {""}

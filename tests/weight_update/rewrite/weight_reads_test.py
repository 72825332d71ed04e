"""Reads of a weight are told apart by the write before them and by who looks at what they read."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.weight_update.rewrite.weight_reads import idle_reads, looked_at, reads_by_time

GRAPH = """
g = Placeholder() [4]
early = ReadVariableOp(w0) [4]
layer = Tanh(early) [4]
decayed = AssignSubVariableOp(w0, early) [] ^early
between = ReadVariableOp(w0) [4] ^decayed
step = AssignSubVariableOp(w0, g) [] ^between
late = ReadVariableOp(w0) [4] ^step
"""


def view(outputs: tuple[str, ...] = ("layer",)) -> GraphView:
    """The graph, returning what is asked for."""
    # As automatic control dependencies have it, the last read runs though nobody looks at it.
    return view_of(GRAPH, replicas=1, variables={"w": (4,)}, outputs=outputs, controls=("late",))


BODY = {"early", "decayed", "between", "step"}


def names(found: dict[int, list[str]]) -> dict[int, list[str]]:
    """Without numbers that nothing was found for."""
    return {number: own for number, own in found.items() if own}


def test_reads_are_by_how_many_writes_come_before_them() -> None:
    found = reads_by_time(view(), "w0", set())
    assert {n: [op.name for op in reads.ops] for n, reads in found.items()} == {
        0: ["early"],
        1: ["between"],
        2: ["late"],
    }
    assert {n: reads.after for n, reads in found.items()} == {0: (), 1: ("decayed",), 2: ("step",)}


def test_of_the_updates_own_reads_those_count_that_others_look_at() -> None:
    found = reads_by_time(view(), "w0", BODY)
    assert {n: [op.name for op in reads.ops] for n, reads in found.items()} == {
        0: ["early"],
        2: ["late"],
    }


def test_a_read_is_looked_at_where_it_is_used_or_returned() -> None:
    graph = view(outputs=("layer", "late"))
    assert looked_at(graph, [graph.ops["early"]])
    assert looked_at(graph, [graph.ops["between"], graph.ops["late"]])
    assert not looked_at(graph, [graph.ops["between"]])
    assert Value("late") in graph.outputs


def test_reads_that_nobody_looks_at_are_idle_unless_they_are_the_updates() -> None:
    assert names(idle_reads(view(), "w0", BODY)) == {2: ["late"]}
    assert names(idle_reads(view(), "w0", ())) == {1: ["between"], 2: ["late"]}
    assert names(idle_reads(view(outputs=("late",)), "w0", BODY)) == {}

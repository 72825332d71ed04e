"""A weight that others read between its writes has a version for each time that they may."""

from __future__ import annotations

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable
from tf_wu_shard.weight_update.rewrite.weight_versions import (
    WeightVersion,
    idle_reads,
    looked_at,
    open_version,
    read_beside,
    weight_versions,
)

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


def weight(*versions: int) -> UpdatedVariable:
    return UpdatedVariable("w", ("w0",), (4,), 1, is_slot=False, versions=versions)


def test_each_version_has_the_writes_since_the_one_before() -> None:
    assert weight_versions(weight(1, 3, 4)) == (
        WeightVersion(1, 1),
        WeightVersion(3, 2),
        WeightVersion(4, 1),
    )


def test_writes_fill_one_version_after_the_other() -> None:
    first, second = versions = weight_versions(weight(2, 3))
    for name in ("one", "two"):
        assert open_version(versions) is first
        first.writes.append(name)
    assert open_version(versions) is second
    # What one replica's copy is filled with is nobody else's.
    assert second.writes == [] and weight_versions(weight(2, 3))[0].writes == []


def test_of_the_updates_own_reads_those_count_that_others_look_at() -> None:
    found = read_beside(view(), "w0", BODY)
    assert [(value.number, [op.name for op in value.reads]) for value in found] == [
        (0, ["early"]),
        (2, ["late"]),
    ]
    assert [value.number for value in read_beside(view(), "w0", ())] == [0, 1, 2]


def test_a_read_is_looked_at_where_it_is_used_or_returned() -> None:
    graph = view(outputs=("layer", "late"))
    assert looked_at(graph, [graph.ops["early"]])
    assert looked_at(graph, [graph.ops["between"], graph.ops["late"]])
    assert not looked_at(graph, [graph.ops["between"]])
    assert Value("late") in graph.outputs


def test_reads_that_nobody_looks_at_are_idle_unless_they_are_the_updates() -> None:
    assert idle_reads(view(), "w0", BODY) == {0: [], 1: [], 2: ["late"]}
    assert idle_reads(view(), "w0", ()) == {0: [], 1: ["between"], 2: ["late"]}
    assert idle_reads(view(outputs=("late",)), "w0", BODY) == {0: [], 1: [], 2: []}

"""A variable holds one value after the other: who makes it, who sees it, and is that certain."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.variables import Access
from tf_wu_shard.step.variable_values import VariableValues, check_order, values_of

STEP = """
c = Const()
early = ReadVariableOp(w0) [4]
rows = ResourceGather(w0, c) [4]
ignored = StatefulPartitionedCall(w0) {f=&ignores}
decayed = AssignSubVariableOp(w0, early) ^rows
branch = StatefulPartitionedCall(w0) {f=&writes} ^decayed
late = ReadVariableOp(w0) [4] ^branch
step = ResourceApplyGradientDescent(w0, c, late)
"""
FUNCTIONS = {
    "ignores": ("h", "", ""),
    "writes": ("h", "c = Const()\na = AssignVariableOp(h, c:output:0)", ""),
}


def step() -> GraphView:
    """A graph in which w0 is written three times."""
    return view_of(
        STEP, replicas=1, variables={"w": (4,)}, outputs=["early", "rows"], functions=FUNCTIONS
    )


def held() -> VariableValues:
    """The values of w0 in that graph."""
    return values_of(step(), "w0")


def race(text: str) -> str | None:
    """The reason why the accesses of w0 are a race, or None."""
    view = view_of(text, replicas=1, variables={"w": (4,)}, outputs=["a"] if "a =" in text else [])
    refusal = check_order(view, "w0")
    return str(refusal) if refusal else None


def test_a_value_is_seen_from_the_write_that_makes_it_to_the_next() -> None:
    values = held().values
    assert [value.number for value in values] == [0, 1, 2, 3]
    assert [value.after for value in values] == [(), ("decayed",), ("branch",), ("step",)]
    reads = [[op.name for op in value.reads] for value in values]
    assert reads == [["early", "rows", "ignored"], [], ["late"], []]
    assert [[op.name for op in v.whole_reads] for v in values] == [["early"], [], ["late"], []]


def test_what_a_call_may_do_to_a_variable_counts_as_a_write_but_not_as_an_own_one() -> None:
    assert [(w.op.name, w.access) for w in held().writes] == [
        ("decayed", Access.WRITE),
        ("branch", Access.UNKNOWN),
        ("step", Access.APPLY),
    ]
    assert [op.name for op in held().own_writes] == ["decayed", "step"]


def test_a_write_finds_the_value_before_the_one_that_it_makes() -> None:
    values = held()
    assert values.seen_by("rows") is values.seen_by("decayed") is values.values[0]
    assert values.made_by("decayed") is values.seen_by("branch") is values.values[1]
    assert values.made_by("step") is values.values[3]
    assert "c" not in values.seen


def test_a_variable_that_nothing_touches_holds_one_value() -> None:
    values = values_of(view_of("c = Const()", replicas=1, variables={"w": (4,)}), "w0")
    (value,) = values.values
    assert (value.write, value.reads, values.writes) == (None, (), [])


def test_the_values_are_found_once_for_a_view_and_go_with_it() -> None:
    view = step()
    assert values_of(view, "w0") is values_of(view, "w0")
    # Another view of the graph may know more of what calls do to the variable.
    other = view.with_part_wise({"branch": {"w": frozenset({"w"})}})
    assert values_of(other, "w0").writes[1].access is Access.PART_WISE
    assert values_of(view, "w0").writes[1].access is Access.UNKNOWN
    gone = weakref.ref(view)
    del view, other
    gc.collect()
    assert gone() is None


def test_accesses_that_wait_for_each_other_are_in_order() -> None:
    assert (
        race(
            """
        read = ReadVariableOp(w0) [4]
        first = AssignVariableOp(w0, read)
        again = ReadVariableOp(w0) [4] ^first
        a = Neg(again)
        second = AssignAddVariableOp(w0, a)
        """
        )
        is None
    )


def test_two_reads_need_no_order() -> None:
    assert race("r = ReadVariableOp(w0)\ns = ReadVariableOp(w0)\na = Add(r, s)") is None


def test_order_through_other_ops_counts() -> None:
    assert (
        race(
            """
        c = Const()
        first = AssignVariableOp(w0, c)
        wait = NoOp() ^first
        second = AssignVariableOp(w0, c) ^wait
        """
        )
        is None
    )


@pytest.mark.parametrize(
    "text",
    [
        "c = Const()\none = AssignVariableOp(w0, c)\nother = AssignVariableOp(w0, c)",
        "c = Const()\none = AssignVariableOp(w0, c)\nother = ReadVariableOp(w0)\na = Neg(other)",
        "c = Const()\none = ReadVariableOp(w0)\na = Neg(one)\nother = AssignVariableOp(w0, c)",
        # Ordered against the read between two writes, not against the first write's reads.
        """
        c = Const()
        one = ReadVariableOp(w0)
        a = Neg(one)
        b = Const()
        other = AssignVariableOp(w0, b) ^c
        """,
    ],
    ids=["write write", "write read", "read write", "read unrelated write"],
)
def test_accesses_that_nothing_orders_are_a_race(text: str) -> None:
    reason = race(text)
    assert reason is not None
    assert reason.startswith("nothing orders it after one, which uses w0 too")

"""The row numbers that an update takes are followed to where they were made."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.inspection.one_device.dominators import Dominators
from tf_wu_shard.inspection.one_device.row_numbers import SEVERAL, behind_rows, rows_entering

INT = "{T=3 Tindices=3 out_type=3}"
ENTRIES = f"""
rows = Placeholder() {INT} [3]
values = Placeholder() [3,2]
same = Identity(rows) {INT} [3]
unique = Unique(same) {INT} [3] [3]
"""


def entering(text: str, table: tuple[int, ...] | None = (8, 2), end: str = "") -> str:
    """The op of the row numbers that the ops named `step...` take; "" where there are none."""
    view = view_of(ENTRIES + text, replicas=1, variables={"w": (8, 2), "m": (8, 2)}).with_inputs(
        ["rows", "values"], {}
    )
    writes = [op for op in view if op.name.startswith("step")]
    gradient = Value(end) if end else None
    found = rows_entering(view, Dominators(view), writes, table, gradient)
    return "" if found is None else found.op


@pytest.mark.parametrize("taken", ["rows", "same", "unique"])
def test_numbers_are_those_behind_what_only_keeps_them_or_lists_each_once(taken: str) -> None:
    assert entering(f"step = ResourceScatterAdd(w0, {taken}, values)") == "rows"


def test_a_sum_over_the_entries_of_each_row_shows_them_if_it_makes_a_table() -> None:
    text = """
    count = Const() {{value=8}} []
    dense = UnsortedSegmentSum(values, rows, count) [{},2]
    step = AssignSubVariableOp(w0, dense)
    """
    assert entering(text.format(8)) == "rows"
    assert entering(text.format(5)) == ""


def test_a_tensor_that_was_made_dense_before_the_update_is_no_sparse_gradient() -> None:
    text = """
    count = Const() {value=8} []
    dense = UnsortedSegmentSum(values, rows, count) [8,2]
    square = Square(dense) [8,2]
    step1 = AssignAddVariableOp(m0, square)
    step2 = AssignSubVariableOp(w0, dense)
    """
    assert entering(text, end="dense") == ""
    assert entering(text) == "rows"


def test_an_update_that_takes_no_numbers_has_none() -> None:
    assert entering("step = AssignSubVariableOp(w0, values)") == ""


def test_what_depends_on_rows_of_two_gradients_is_known_to() -> None:
    view = view_of(
        ENTRIES
        + f"""
        others = Placeholder() {INT} [3]
        one = GatherV2(values, rows) [3,2]
        two = GatherV2(values, others) [3,2]
        both = Add(one, two) [3,2]
        put = AssignAddVariableOp(m0, one)
        later = ReadVariableOp(m0) [8,2] ^put
        seen = Add(later, two) [8,2]
        free = Neg(values) [3,2]
        """,
        replicas=1,
        variables={"m": (8, 2)},
    )
    rows, others = Value("rows"), Value("others")
    behind = behind_rows(view, {rows, others}, {"m": [view.ops["put"]]})
    assert behind["one"] == rows and behind["two"] == others and behind["both"] is SEVERAL
    assert behind["later"] == rows and behind["seen"] is SEVERAL
    assert "free" not in behind

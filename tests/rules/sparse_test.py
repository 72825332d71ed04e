"""What comes of rows and entries is known of the calls that updates are made of, of no others."""

from __future__ import annotations

import dataclasses

import pytest

from tests.graph.text_graph import Attribute, Attributes
from tf_wu_shard.dtypes import FLOAT32
from tf_wu_shard.graph.op import Value
from tf_wu_shard.placement import Cut, Placement, Replicated, RowPlacement, What
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.operation import LocalOp, Operation, OwnRows
from tf_wu_shard.rules.registry import localize, propagate
from tf_wu_shard.rules.sparse import ALL_OR_NONE

ROWS = RowPlacement(What.ROWS, "all", num_rows=9)
OTHERS = RowPlacement(What.ROWS, "others", num_rows=9)
ENTRIES = RowPlacement(What.ENTRIES, "all", shape=(3,))
TABLE = RowPlacement(What.TABLE, shape=(9, 3))
SCALAR = Replicated(())


def operation(op_type: str, *operands: Placement | None, **attributes: int) -> Operation:
    """A call; the third operand is the constant that is called so."""
    third = attributes.pop("third", None)
    inputs = tuple(Value(f"operand_{number}") for number in range(len(operands)))
    held = Attributes({name: Attribute(str(value)) for name, value in attributes.items()})
    constants = {} if third is None else {2: (third,)}
    return Operation(op_type, "op", inputs, held, constants, None, FLOAT32)


def placed(op_type: str, *operands: Placement | None, **attributes: int) -> object:
    """Where its results lie; of what has no rule, the op that is named."""
    outcome = propagate(operation(op_type, *operands, **attributes), operands, Cut.ROWS)
    return outcome.where if isinstance(outcome, Refusal) else outcome


def test_entries_of_known_rows_are_added_up_to_a_table() -> None:
    assert placed("UnsortedSegmentSum", ENTRIES, ROWS, SCALAR, third=9) == (TABLE,)
    number = RowPlacement(What.NUM_ROWS)
    assert placed("UnsortedSegmentSum", ENTRIES, ROWS, number) == (TABLE,)


def test_entries_at_places_are_added_up_to_entries_of_each_row_once() -> None:
    places, count = RowPlacement(What.PLACES, "all", "once"), RowPlacement(What.COUNT, "once")
    once = RowPlacement(What.ENTRIES, "once", shape=(3,))
    assert placed("UnsortedSegmentSum", ENTRIES, places, count) == (once,)


@pytest.mark.parametrize(
    ("operands", "third"),
    [
        ((ENTRIES, ROWS, SCALAR), 8),
        ((ENTRIES, ROWS, SCALAR), None),
        ((ENTRIES, OTHERS, SCALAR), 9),
        ((TABLE, ROWS, SCALAR), 9),
        ((ENTRIES, None, SCALAR), 9),
        ((ENTRIES, RowPlacement(What.PLACES, "all", "once"), SCALAR), 9),
    ],
    ids=("fewer rows", "unknown", "other rows", "of a table", "outside", "uncounted places"),
)
def test_other_segment_sums_are_none(
    operands: tuple[Placement | None, ...], third: int | None
) -> None:
    known = {} if third is None else {"third": third}
    assert placed("UnsortedSegmentSum", *operands, **known) == "op"


def test_a_shard_adds_up_to_its_own_rows() -> None:
    operands = (ENTRIES, ROWS, SCALAR)
    call = operation("UnsortedSegmentSum", *operands, third=9, Tnumsegments=3)
    assert localize(call, operands) == LocalOp((0, 1, OwnRows(3)))
    places = (ENTRIES, RowPlacement(What.PLACES, "all", "once"), None)
    assert localize(operation("UnsortedSegmentSum", *places, Tnumsegments=3), places) is None


@pytest.mark.parametrize(("axis", "batch", "known"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_rows_are_looked_up_along_the_first_axis(axis: int, batch: int, known: bool) -> None:
    found = placed("GatherV2", TABLE, ROWS, SCALAR, third=axis, batch_dims=batch)
    assert found == ((ENTRIES,) if known else "op")


def test_rows_are_read_of_the_updates_own_table_alone() -> None:
    assert placed("ResourceGather", TABLE, ROWS, batch_dims=0) == (ENTRIES,)
    assert placed("ResourceGather", None, ROWS, batch_dims=0) == "op"
    assert placed("ResourceGather", TABLE, None, batch_dims=0) == "op"
    assert placed("ResourceGather", TABLE, ROWS, batch_dims=1) == "op"


def test_rows_without_repetition_are_a_list_of_their_own_with_the_place_of_each_entry() -> None:
    rows, places = RowPlacement(What.ROWS, "op", num_rows=9), RowPlacement(What.PLACES, "all", "op")
    assert placed("Unique", ROWS) == (rows, places)
    assert placed("Unique", ENTRIES) == "op"


def test_only_of_lists_the_sizes_are_a_shards_own() -> None:
    assert placed("Shape", ROWS) == (RowPlacement(What.SIZES, "all"),)
    assert placed("Shape", ENTRIES) == (RowPlacement(What.SIZES, "all"),)
    assert placed("Shape", TABLE) == "op"


def test_all_of_a_list_or_nothing_is_a_list_that_all_with_one_end_share() -> None:
    operands = (ROWS, SCALAR, SCALAR, SCALAR)
    marked = operation("StridedSlice", *operands, **{ALL_OR_NONE: 1})
    (rows,) = propagate(marked, operands, Cut.ROWS)  # type: ignore[misc]
    (entries,) = propagate(marked, (ENTRIES, *operands[1:]), Cut.ROWS)  # type: ignore[misc]
    assert isinstance(rows, RowPlacement)
    assert rows == dataclasses.replace(ROWS, entries=rows.entries) and rows.entries != "all"
    assert entries == dataclasses.replace(ENTRIES, entries=rows.entries)
    assert placed("StridedSlice", *operands) == "op"
    other = dataclasses.replace(marked, inputs=tuple(Value(f"other_{n}") for n in range(4)))
    assert propagate(other, operands, Cut.ROWS) != (rows,)

"""A sparse gradient is gathered where both branches are proved to gather the same entries."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.grounds.dialect import CarriedReduction, CarriedSlices, Gathered
from tf_wu_shard.grounds.in_process.gathered_slices import gathered_slices

ON_ONE_DEVICE = """
axis = Const() {value=0}
v# = Mul() [2,3] @d#
r# = Placeholder() {T=3} [2] @d#
values = ConcatV2(v0, v1, axis) [4,3] @d0
rows = ConcatV2(r1, r0, axis) {T=3} [4] @d0
value# = Identity(values) [4,3] @d#
row# = Identity(rows) {T=3} [4] @d#
"""

# Each replica's If, with the numbers of all replicas' entries.
BRANCHES = """
size = Const() {value=2}
key = Const() {value=5}
v# = Mul() [2,3] @d#
r# = Placeholder() {T=3} [2] @d#
shape# = Placeholder() {T=3} [2] @d#
own# = Shape(r#) {T=3} [1] @d#
lengths# = CollectiveGatherV2(own#, size, key) {T=3} [2] @d#
longest# = Max(lengths#, size) {T=3} [] @d#
shortest# = Min(lengths#, size) {T=3} [] @d#
same# = Equal(longest#, shortest#) {T=10} [] @d#
if# = If(same#, v#, r#, shape#, lengths#) {then_branch=&plain else_branch=&padded} [4,3] [4] [2] @d#
"""

PLAIN = """
size = Const() {value=2}
key = Const() {value=5}
gv = CollectiveGatherV2(v, size:output:0, key:output:0) [4,3]
gr = CollectiveGatherV2(r, size:output:0, key:output:0) [4]
"""

# The i-th piece begins at i times the longest length and is as long as the i-th.
PADDED = """
size = Const() {value=2}
key = Const() {value=5}
zero = Const() {value=0}
one = Const() {value=1}
longest = Max(lengths, zero:output:0)
start0 = Mul(zero:output:0, longest:output:0)
start1 = Mul(one:output:0, longest:output:0)
length0 = StridedSlice(lengths, zero:output:0, one:output:0, one:output:0) {shrink_axis_mask=1}
length1 = StridedSlice(lengths, one:output:0, size:output:0, one:output:0) {shrink_axis_mask=1}
stop0 = AddV2(start0:output:0, length0:output:0)
stop1 = AddV2(start1:output:0, length1:output:0)
from1 = Pack(start1:output:0)
to1 = Pack(stop1:output:0)
pv = Pad(v, zero:output:0)
gv = CollectiveGatherV2(pv:output:0, size:output:0, key:output:0)
v0 = StridedSlice(gv:output:0, start0:output:0, stop0:output:0, one:output:0)
v1 = StridedSlice(gv:output:0, from1:output:0, to1:output:0, one:output:0)
cv = ConcatV2(v0:output:0, v1:output:0, zero:output:0)
pr = Pad(r, zero:output:0)
gr = CollectiveGatherV2(pr:output:0, size:output:0, key:output:0)
r0 = StridedSlice(gr:output:0, start0:output:0, stop0:output:0, one:output:0)
r1 = StridedSlice(gr:output:0, from1:output:0, to1:output:0, one:output:0)
cr = ConcatV2(r0:output:0, r1:output:0, zero:output:0)
"""

DEVICES = ("d0", "d1")


def on_one_device(text: str, total: int = 2) -> list[CarriedReduction]:
    outputs = ("value0", "value1", "row0", "row1")
    return gathered_slices(view_of(text, outputs=outputs), DEVICES, total)


def by_branches(
    plain: str = PLAIN,
    padded: str = PADDED,
    text: str = BRANCHES,
    devices: tuple[str, str] = DEVICES,
    total: int = 2,
) -> list[CarriedReduction]:
    arguments = "v r shape lengths"
    functions = {
        "plain": (arguments, plain, "gv:output:0 gr:output:0 shape"),
        "padded": (arguments, padded, "cv:output:0 cr:output:0 shape"),
    }
    return gathered_slices(view_of(text, functions=functions), devices, total)


def told(found: list[CarriedReduction]) -> list[tuple[Gathered, list[str], list[str]]]:
    """Of each part what it is, its operands and its results."""
    return [
        (one.gathered, [*map(str, one.operands)], [*map(str, one.results)])
        for one in found
        if isinstance(one, CarriedSlices)
    ]


def test_what_one_device_joins_and_each_gets_back_is_a_part_in_the_order_of_the_join() -> None:
    found = on_one_device(ON_ONE_DEVICE)
    assert told(found) == [
        (Gathered.VALUES, ["v0", "v1"], ["value0", "value1"]),
        (Gathered.ROWS, ["r0", "r1"], ["row0", "row1"]),
    ]
    assert [one.order for one in found if isinstance(one, CarriedSlices)] == [(0, 1), (1, 0)]
    assert [one.carriers for one in found] == [("values",), ("rows",)]


@pytest.mark.parametrize(
    ("old", "new", "total", "left"),
    [
        ("axis = Const() {value=0}", "axis = Const() {value=1}", 2, 0),
        ("ConcatV2(v0, v1, axis)", "ConcatV2(v0, v0, axis)", 2, 1),
        ("value# = Identity(values)", "value# = Neg(values)", 2, 1),
        ("value# = ", "seen = Neg(values) @d0\nsaid = Print(seen)\nvalue# = ", 2, 1),
        ("", "", 4, 0),
    ],
    ids=(
        *("another axis", "one replica twice", "not handed back", "read by another"),
        "replicas in other processes",
    ),
)
def test_other_joins_are_none(old: str, new: str, total: int, left: int) -> None:
    text = ON_ONE_DEVICE.replace(old, new) if old else ON_ONE_DEVICE
    assert len(on_one_device(text, total)) == left


def test_the_ifs_of_all_replicas_that_gather_with_and_without_padding_are_one_gradient() -> None:
    found = by_branches()
    assert told(found) == [
        (Gathered.VALUES, ["v0", "v1"], ["if0", "if1"]),
        (Gathered.ROWS, ["r0", "r1"], ["if0:1", "if1:1"]),
        (Gathered.SHAPE, ["shape0", "shape1"], ["if0:2", "if1:2"]),
    ]
    assert {one.carriers for one in found} == {("if0", "lengths0", "if1", "lengths1")}


def test_entries_stand_by_the_numbers_of_their_devices_not_by_their_words() -> None:
    text = BRANCHES
    for number, device in enumerate(("d10", "d9")):
        text += BRANCHES.split("\n", 3)[3].replace("@d#", f"@{device}").replace("#", f"_{number}")
    found = by_branches(text=text, devices=("d10", "d9"))
    assert {one.order for one in found if isinstance(one, CarriedSlices)} == {(1, 0)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value=5", "value=6"),
        ("value=2", "value=3"),
        ("gv = CollectiveGatherV2(v,", "gv = CollectiveGatherV2(r,"),
        ("start1 = Mul(one", "start1 = Mul(size"),
        ("length1 = StridedSlice(lengths, one", "length1 = StridedSlice(lengths, zero"),
        ("stop1 = AddV2(start1:output:0, length1", "stop1 = AddV2(start1:output:0, length0"),
        ("cv = ConcatV2(v0:output:0, v1", "cv = ConcatV2(v1:output:0, v0"),
        ("v1 = StridedSlice(gv:", "v1 = StridedSlice(gr:"),
        ("to1:output:0, one:output:0)\ncv", "to1:output:0, one:output:0) {end_mask=1}\ncv"),
        ("pv = Pad(v", "pv = Tile(v"),
    ],
    ids=(
        *("another group", "more members", "something else"),
        *("another start", "another length", "another stop", "another order"),
        *("another source", "to the end", "not padded"),
    ),
)
def test_branches_that_are_not_proved_to_gather_the_same_entries_are_none(
    old: str, new: str
) -> None:
    # What both of them say is changed in one alone.
    plain, padded = PLAIN.replace(old, new), PADDED.replace(old, new)
    assert (plain, padded) != (PLAIN, PADDED)
    found = by_branches(plain) if plain != PLAIN else by_branches(padded=padded)
    assert found == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("own# = Shape(r#)", "own# = Shape(v#)"),
        ("longest# = Max(", "longest# = Neg("),
        ("same# = Equal(", "same# = Less("),
        ("r# = Placeholder() {T=3}", "r# = Placeholder() {T=1}"),
    ],
    ids=("of something else", "lengths read", "longest read", "no row numbers"),
)
def test_lengths_that_are_not_those_of_the_entries_alone_are_none(old: str, new: str) -> None:
    assert by_branches(text=BRANCHES.replace(old, new)) == []

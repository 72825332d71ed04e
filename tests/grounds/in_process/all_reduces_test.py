"""What NcclAllReduce and HierarchicalCopyAllReduce make is one sum of what they packed."""

from __future__ import annotations

import pytest

from tests.grounds.in_process.recognise_test import recognised

NCCL = """
g# = Mul() [8] @d#
sum# = NcclAllReduce(g#) {reduction=sum num_devices=2 shared_name=c0} [8] @d#
"""

# Two halves of two replicas each.
HALVES = """
g0 = Mul() [8] @d0
g1 = Mul() [8] @d1
g2 = Mul() [8] @d2
g3 = Mul() [8] @d3
first = AddN(g0, g1) [8] @d0
second = AddN(g2, g3) [8] @d2
total = AddN(first, second) [8] @d0
back_first = Identity(total) [8] @d0
back_second = Identity(total) [8] @d2
out0 = Identity(back_first) [8] @d0
out1 = Identity(back_first) [8] @d1
out2 = Identity(back_second) [8] @d2
out3 = Identity(back_second) [8] @d3
"""
FOUR = tuple(f"d{number}" for number in range(4))
OUTS = tuple(f"out{number}" for number in range(4))

# A vector in two pieces, each summed by itself.
PIECES = """
axis = Const() {value=0}
sizes = Const() {value=4}
g# = Mul() [8] @d#
cut# = SplitV(g#, sizes, axis) [4] [4] @d#
a# = NcclAllReduce(cut#) {reduction=sum num_devices=2 shared_name=c0} [4] @d#
b# = NcclAllReduce(cut#:1) {reduction=sum num_devices=2 shared_name=c1} [4] @d#
sum# = ConcatV2(a#, b#, axis) [8] @d#
"""

# In one piece.
PIECE = """
axis = Const() {value=0}
sizes = Const() {value=8}
g# = Mul() [8] @d#
cut# = SplitV(g#, sizes, axis) [8] @d#
a# = NcclAllReduce(cut#) {reduction=sum num_devices=2 shared_name=c0} [8] @d#
passed# = Identity(a#) [8] @d#
sum# = Identity(passed#) [8] @d#
"""


def taken(
    text: str, outputs: tuple[str, ...], devices: tuple[str, ...] = ("d0", "d1")
) -> list[tuple[list[str], list[str], tuple[str, ...]]]:
    """Operands, results and carriers of each sum that is found."""
    found, refused = recognised(text, outputs, devices)
    assert refused == []
    return [(list(map(str, r.operands)), list(map(str, r.results)), r.carriers) for r in found]


def test_the_nccl_ops_of_one_name_are_one_sum() -> None:
    assert taken(NCCL, ("sum0", "sum1")) == [(["g0", "g1"], ["sum0", "sum1"], ("sum0", "sum1"))]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("reduction=sum", "reduction=max", "it reduces by max and Id, not to a sum"),
        ("num_devices=2", "num_devices=3", "its group has 3 members, the step 2 replicas"),
        ("shared_name=c0", "shared_name=c#", "not every replica takes part in this sum"),
    ],
)
def test_other_nccl_ops_are_refused(old: str, new: str, reason: str) -> None:
    found, refused = recognised(NCCL.replace(old, new), ("sum0", "sum1"))
    assert found == []
    assert refused and all(text.startswith(reason) for text in refused)


def test_sums_of_halves_are_a_sum_of_all_replicas() -> None:
    (found,) = taken(HALVES, OUTS, FOUR)
    assert found == (["g0", "g1", "g2", "g3"], list(OUTS), ("total", "first", "second"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # As TensorFlow does of three replicas, whose halves are one each.
        ("AddN(g2, g3)", "AddN(g2)"),
        ("AddN(g2, g3)", "AddN(g2, g2)"),
        # Somebody else reads the sum of one half, which is not to go.
        ("total = ", "seen = Neg(first) @d0\nout = Print(seen)\ntotal = "),
        # One replica gets another value.
        ("out3 = Identity(back_second)", "out3 = Neg(back_second)"),
        ("out3 = Identity(back_second) [8] @d3", "out3 = Identity(back_second) [8] @d2"),
    ],
    ids=["a half of one", "a term twice", "half read", "not handed back", "one gets it twice"],
)
def test_other_sums_of_sums_are_none(old: str, new: str) -> None:
    assert taken(HALVES.replace(old, new), OUTS, FOUR) == []


def test_the_sums_of_all_pieces_of_a_vector_are_the_sum_of_the_vector() -> None:
    (found,) = taken(PIECES, ("sum0", "sum1"))
    carriers = ("a0", "a1", "b0", "b1", "cut0", "cut1")
    assert found == (["g0", "g1"], ["sum0", "sum1"], carriers)


def test_a_vector_in_one_piece_is_summed_as_it_was_before_it_was_cut() -> None:
    (found,) = taken(PIECE, ("sum0", "sum1"))
    assert found == (["g0", "g1"], ["sum0", "sum1"], ("a0", "a1", "cut0", "cut1"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The sums are put together in another order than the vector was cut in.
        ("ConcatV2(a#, b#, axis)", "ConcatV2(b#, a#, axis)"),
        ("[4] [4] @d#", "[2] [4] [2] @d#"),
        ("sum# = ", "seen# = Neg(a#) @d#\nout# = Print(seen#)\nsum# = "),
        ("a# = ", "seen# = Neg(cut#) @d#\nout# = Print(seen#)\na# = "),
    ],
    ids=["another order", "not all pieces", "a sum read", "a piece read"],
)
def test_other_pieces_stay_sums_of_their_own(old: str, new: str) -> None:
    found = taken(PIECES.replace(old, new), ("sum0", "sum1"))
    assert [operands for operands, _, _ in found] == [["cut0", "cut1"], ["cut0:1", "cut1:1"]]

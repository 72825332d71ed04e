"""A packed sum is taken apart where it is cut as it was put together, and stays whole otherwise."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.step.packs import parts, unflattened

PACKED = """
axis = Const() {value=0}
all = Const() {value=-1} [1]
sizes = Const() {value=2x3}
a# = Placeholder() [2] @d#
b# = Placeholder() [3] @d#
pack# = ConcatV2(a#, b#, axis) [5] @d#
sum# = CollectiveReduceV2(pack#, sizes, sizes) [5] @d#
cut# = SplitV(sum#, sizes, axis) [2] [3] @d#
"""

# Word vectors of a batch that is open: each part is as long as the tensor that it is made of.
OPEN = """
axis = Const() {value=0}
all = Const() {value=-1} [1]
key = Const() {value=1}
x# = Placeholder() [-1,4] @d#
y# = Placeholder() [-1,7] @d#
a# = Reshape(x#, all) [-1] @d#
b# = Reshape(y#, all) [-1] @d#
shape# = Shape(x#) [2] @d#
long# = Prod(shape#, axis) [] @d#
rest# = Size(y#) [] @d#
sizes# = Pack(long#, rest#) [2] @d#
pack# = ConcatV2(a#, b#, axis) [-1] @d#
sum# = CollectiveReduceV2(pack#, key, key) [-1] @d#
cut# = SplitV(sum#, sizes#, axis) [-1] [-1] @d#
"""


# What is looked at of the step.
CUTS, EXTRA = ("cut0", "cut1"), ("more0", "more1")


def taken_apart(text: str) -> list[tuple[list[str], list[str]]]:
    """Per part, its operands and its results on both replicas."""
    operands, results = (tuple(Value(f"{name}{r}") for r in (0, 1)) for name in ("pack", "sum"))
    carried = CarriedReduction(operands, results, 1, ("sum0", "sum1"))
    view = view_of(text, outputs=[*CUTS, *EXTRA] if "more#" in text else CUTS)
    found = parts(view, carried)
    return [([str(v) for v in own], [str(v) for v in cut]) for own, cut in found]


WHOLE = [(["pack0", "pack1"], ["sum0", "sum1"])]


@pytest.mark.parametrize("text", [PACKED, OPEN], ids=("known sizes", "open sizes"))
def test_each_part_of_a_pack_is_a_reduction_of_its_own(text: str) -> None:
    assert taken_apart(text) == [
        (["a0", "a1"], ["cut0", "cut1"]),
        (["b0", "b1"], ["cut0:1", "cut1:1"]),
    ]


def test_one_open_part_has_what_the_others_leave() -> None:
    text = PACKED.replace("a# = Placeholder() [2]", "a# = Placeholder() [-1]")
    assert len(taken_apart(text.replace("[2] [3] @d#", "[-1] [3] @d#"))) == 2


def test_a_pack_of_one_gradient_is_that_gradient() -> None:
    text = PACKED.replace("[2] [3] @d#", "[5] @d#")
    assert taken_apart(text) == [(["pack0", "pack1"], ["cut0", "cut1"])]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Cut elsewhere, or into more.
        ("[2] [3] @d#", "[3] [2] @d#"),
        ("[2] [3] @d#", "[2] [2] [1] @d#"),
        # Someone else looks at the whole sum.
        ("cut#", "more# = Neg(sum#) [5] @d#\ncut#"),
        ("ConcatV2", "Unknown"),
    ],
)
def test_a_pack_that_is_not_cut_as_it_was_made_stays_whole(old: str, new: str) -> None:
    assert taken_apart(PACKED.replace(old, new)) == WHOLE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The sizes are those of other tensors, of a part of a shape, or nobody knows whose.
        ("shape# = Shape(x#)", "shape# = Shape(y#)"),
        ("rest# = Size(y#)", "rest# = Size(x#)"),
        ("axis = Const() {value=0}", "axis = Const() {value=1}"),
        ("sizes# = Pack(long#, rest#)", "sizes# = Placeholder()"),
        ("rest# = Size(y#)", "rest# = Rank(y#)"),
    ],
)
def test_open_parts_are_measured_or_the_pack_stays_whole(old: str, new: str) -> None:
    assert taken_apart(OPEN.replace(old, new)) == WHOLE


def test_a_vector_of_all_elements_is_the_tensor_that_it_was_made_of() -> None:
    view = view_of(OPEN)
    assert unflattened(view, Value("a0")) == Value("x0")
    assert unflattened(view, Value("x0")) == Value("x0")

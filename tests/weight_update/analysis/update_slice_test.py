"""A sum over a tensor in shards ends the update's slice: what follows it is the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.weight_update.analysis.steps import MOMENTUM, SHAPES, analysis_of, reasons_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.placement import Combine, Partial
from tf_wu_shard.weight_update.analysis.types import BodyOp, OperandKind, WeightUpdate

FLOAT = 1
BOOL = 10

# w -= sum / norm(sum)
NORMED = """
all = Const() {value=0} [1]
squares# = Square(sum#) [4] @d#
total# = Sum(squares#, all) {T=1} [] @d#
norm# = Sqrt(total#) [] @d#
unit# = RealDiv(sum#, norm#) [4] @d#
step# = AssignSubVariableOp(w#, unit#) @d#
"""

# The second gradient, of v.
SECOND = """
h# = Neg(x#) [4] @d#
more# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
"""


def update_of(
    text: str, variables: Mapping[str, tuple[int, ...]] | None = None
) -> tuple[WeightUpdate, dict[str, BodyOp]]:
    """The only update, and its body ops by their names on replica 0."""
    analysis = analysis_of(text, variables=variables or {"w": (4,)})
    assert reasons_of(analysis) == {}
    (update,) = analysis.updates
    return update, {op.ops[0]: op for op in update.body}


def test_a_norm_is_part_of_the_body_and_what_is_made_of_it_is_not() -> None:
    _, body = update_of(NORMED)
    assert [*body] == ["squares0", "total0", "unit0", "step0"]
    assert body["total0"].sum == Partial((), Combine.SUM, (4,), (0,), FLOAT)
    assert [o.kind for o in body["total0"].operands] == [OperandKind.BODY]
    assert all(op.sum is None for name, op in body.items() if name != "total0")
    scale = body["unit0"].operands[1]
    assert (scale.kind, scale.values) == (OperandKind.SCALAR, (Value("norm0"), Value("norm1")))


# w = Cumsum(w), before anything else; what follows takes it.
NORMALIZED = """
axis = Const() {value=0} []
held# = ReadVariableOp(w#) [4] @d#
even# = Cumsum(held#, axis) [4] @d#
put# = AssignVariableOp(w#, even#) @d#
step# = AssignSubVariableOp(w#, sum#) @d# ^put#
"""


def test_what_is_computed_of_whole_weights_alone_stays_outside() -> None:
    update, body = update_of(NORMALIZED)
    assert [*body] == ["put0", "step0"]
    assigned = body["put0"].operands[1]
    assert (assigned.kind, assigned.values) == (
        OperandKind.SLICE,
        (Value("even0"), Value("even1")),
    )
    (weight,) = update.variables
    assert not weight.is_slot and weight.versions == (2,)


@pytest.mark.parametrize(
    "taken",
    [
        "mixed# = Add(held#, sum#) [4] @d#\neven# = Cumsum(mixed#, axis) [4] @d#",
        "slot# = ReadVariableOp(m#) [4] @d#\neven# = Cumsum(slot#, axis) [4] @d#\n"
        "more# = AssignAddVariableOp(m#, sum#) @d# ^slot#",
    ],
    ids=["gradient", "slot"],
)
def test_what_takes_a_gradient_or_a_slot_does_not_stay_outside(taken: str) -> None:
    text = NORMALIZED.replace("even# = Cumsum(held#, axis) [4] @d#", taken)
    analysis = analysis_of(text, variables=SHAPES)
    assert any(reason.startswith("no rule for Cumsum") for reason in reasons_of(analysis).values())


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_a_maximum_is_a_sum_of_another_kind(op_type: str) -> None:
    _, body = update_of(NORMED.replace("= Sum(", f"= {op_type}("))
    assert body["total0"].sum == Partial((), Combine[op_type.upper()], (4,), (0,), FLOAT)


def test_whether_any_element_is_large_is_known_on_every_replica() -> None:
    text = """
    all = Const() {value=0} [1]
    large# = Greater(sum#, sum#) {T=1} [4] @d#
    any# = Any(large#, all) {T=10} [] @d#
    step# = SelectV2(any#, sum#, sum#) [4] @d#
    put# = AssignSubVariableOp(w#, step#) @d#
    """
    _, body = update_of(text)
    assert body["any0"].sum == Partial((), Combine.MAX, (4,), (0,), BOOL)
    assert body["step0"].operands[0].kind is OperandKind.SCALAR


def test_no_maximum_of_64_bits_travels() -> None:
    text = """
    all = Const() {value=0} [1]
    wide# = Cast(sum#) {DstT=9} [4] @d#
    most# = Max(wide#, all) {T=9} [] @d#
    back# = Cast(most#) {DstT=1} [] @d#
    scaled# = Mul(sum#, back#) [4] @d#
    step# = AssignSubVariableOp(w#, scaled#) @d#
    """
    reasons = reasons_of(analysis_of(text, variables={"w": (4,)}))
    assert "no sum over the replicas is known for its element type" in reasons["w"]


def test_a_norm_may_be_returned_like_any_outside_value() -> None:
    analysis = analysis_of(NORMED, variables={"w": (4,)}, outputs=["norm0", "total1"])
    assert len(analysis.updates) == 1 and reasons_of(analysis) == {}


def test_a_norm_that_is_only_returned_is_summed_over_shards_as_well() -> None:
    text = MOMENTUM + "norm# = L2Loss(sum#) {T=1} [] @d#\n"
    analysis = analysis_of(text, outputs=["norm0", "norm1"])
    (update,) = analysis.updates
    (norm,) = (op for op in update.body if op.sum is not None)
    assert norm.ops == ("norm0", "norm1") and norm.sum == Partial(
        (), Combine.SUM, (4,), (0,), FLOAT
    )


def test_a_norm_that_replica_0_alone_returns_is_summed_over_shards_as_well() -> None:
    analysis = analysis_of(MOMENTUM + "norm = L2Loss(sum0) {T=1} [] @d0\n", outputs=["norm"])
    (update,) = analysis.updates
    assert [op.ops for op in update.body if op.sum is not None] == [("norm", "norm")]


def test_a_norm_on_another_replica_alone_is_a_look_from_outside() -> None:
    analysis = analysis_of(MOMENTUM + "norm = L2Loss(sum1) {T=1} [] @d1\n", outputs=["norm"])
    assert reasons_of(analysis) == {"w": "L2Loss also looks at a value of the update (norm)"}


def test_a_norm_of_each_row_is_broadcast_over_the_shard() -> None:
    text = """
    last = Const() {value=1} [1]
    shape = Const() {value=2} [2]
    grid# = Reshape(sum#, shape) [2,2] @d#
    rows# = EuclideanNorm(grid#, last) {T=1} [2,1] @d#
    unit# = RealDiv(grid#, rows#) [2,2] @d#
    step# = AssignSubVariableOp(w#, unit#) @d#
    """
    _, body = update_of(text, {"w": (2, 2)})
    assert body["rows0"].sum == Partial((2, 1), Combine.SUM, (2, 2), (1,), FLOAT)
    norms = body["unit0"].operands[1]
    assert (norms.kind, norms.shape) == (OperandKind.BROADCAST, (2, 2))
    assert norms.values == (Value("rows0"), Value("rows1"))


def test_axes_count_from_the_front() -> None:
    text = NORMED.replace("all = Const() {value=0}", "all = Const() {value=-1}")
    _, body = update_of(text)
    assert body["total0"].sum == Partial((), Combine.SUM, (4,), (0,), FLOAT)


def test_a_global_norm_ties_no_updates_together() -> None:
    text = """
    one# = L2Loss(sum#) {T=1} [] @d#
    two# = L2Loss(more#) {T=1} [] @d#
    both# = AddV2(one#, two#) [] @d#
    first# = RealDiv(sum#, both#) [4] @d#
    second# = RealDiv(more#, both#) [4] @d#
    put# = AssignSubVariableOp(w#, first#) @d#
    step# = AssignSubVariableOp(v#, second#) @d#
    """
    analysis = analysis_of(SECOND + text, variables={"w": (4,), "v": (4,)}, trainable=("w", "v"))
    assert reasons_of(analysis) == {}
    sums = {u.name: [op.ops[0] for op in u.body if op.sum is not None] for u in analysis.updates}
    assert sums == {"w": ["one0"], "v": ["two0"]}
    kinds = {u.name: u.body[1].operands[1].kind for u in analysis.updates}
    assert set(kinds.values()) == {OperandKind.SCALAR}


@pytest.mark.parametrize("other", ["more#", "halved#", "passed#:1"])
def test_a_product_of_two_gradients_is_not_summed_over_shards(other: str) -> None:
    text = """
    half = Const() {value=1} []
    halved# = Mul(more#, half) [4] @d#
    passed# = IdentityN(half, halved#) [] [4] @d#
    product# = Mul(sum#, OTHER) [4] @d#
    dot# = L2Loss(product#) {T=1} [] @d#
    first# = RealDiv(sum#, dot#) [4] @d#
    put# = AssignSubVariableOp(w#, first#) @d#
    step# = AssignSubVariableOp(v#, more#) @d#
    """
    text = SECOND + text.replace("OTHER", other)
    analysis = analysis_of(text, variables={"w": (4,), "v": (4,)}, trainable=("w", "v"))
    reason = "it mixes gradients whose updates are kept apart (product0)"
    assert reasons_of(analysis) == {"w": reason, "v": reason}


# Adafactor: row means go into a slot of their own, which a slot of the weight's shape is made of.
FACTORED = """
last = Const() {value=1} [1]
shape = Const() {value=2} [2]
grid# = Reshape(sum#, shape) [2,2] @d#
squares# = Square(grid#) [2,2] @d#
rows# = Mean(squares#, last) {T=1} [2,1] @d#
put_rows# = AssignVariableOp(r#, rows#) @d#
read_rows# = ReadVariableOp(r#) [2,1] @d# ^put_rows#
old# = ReadVariableOp(c#) [1,2] @d#
outer# = Mul(read_rows#, old#) [2,2] @d#
put# = AssignVariableOp(s#, outer#) @d#
second# = ReadVariableOp(s#) [2,2] @d# ^put#
unit# = RealDiv(grid#, second#) [2,2] @d#
step# = AssignSubVariableOp(w#, unit#) @d#
"""
FACTORED_SHAPES = {"w": (2, 2), "s": (2, 2), "r": (2, 1), "c": (1, 2)}


def test_a_slot_made_of_means_belongs_to_the_update() -> None:
    update, body = update_of(FACTORED, FACTORED_SHAPES)
    assert [v.key for v in update.slots] == ["s"]
    assert body["rows0"].sum == Partial((2, 1), Combine.SUM, (2, 2), (1,), FLOAT)
    # The outer product is made shard by shard, never whole.
    kinds = [operand.kind for operand in body["outer0"].operands]
    assert kinds == [OperandKind.BROADCAST, OperandKind.BROADCAST]
    assert "put_rows0" not in body


def test_a_slot_that_is_written_with_what_the_update_takes_belongs_to_it() -> None:
    """As in a branch that is written out: the update takes what is about to be written."""
    read = "second# = ReadVariableOp(s#) [2,2] @d# ^put#"
    text = FACTORED.replace(read, "second# = Rsqrt(outer#) [2,2] @d#")
    assert read not in text
    update, body = update_of(text, FACTORED_SHAPES)
    assert [v.key for v in update.slots] == ["s"]
    assert [operand.kind for operand in body["outer0"].operands] == [OperandKind.BROADCAST] * 2
    # A table that something else is written with stays what it is.
    other = text.replace("put# = AssignVariableOp(s#, outer#)", "put# = AssignVariableOp(s#, old#)")
    update, _ = update_of(other, FACTORED_SHAPES)
    assert update.slots == ()


def test_a_slot_made_of_means_that_something_else_reads_stays_whole() -> None:
    text = FACTORED + "peek# = ReadVariableOp(s#) [2,2] @d# ^put#\n"
    text += "cut# = Cumsum(peek#) [2,2] @d#\n"
    analysis = analysis_of(text, variables=FACTORED_SHAPES, outputs=["cut0", "cut1"])
    (update,) = analysis.updates
    assert [v.key for v in update.variables] == ["w"]
    body = {op.ops[0]: op for op in update.body}
    assert body["unit0"].operands[1].kind is OperandKind.SLICE


def test_a_table_that_nothing_writes_is_no_slot() -> None:
    text = """
    mask# = ReadVariableOp(s#) [4] @d#
    masked# = Mul(sum#, mask#) [4] @d#
    step# = AssignSubVariableOp(w#, masked#) @d#
    """
    update, body = update_of(text, {"w": (4,), "s": (4,)})
    assert [v.key for v in update.variables] == ["w"]
    assert body["masked0"].operands[1].kind is OperandKind.SLICE


def test_the_norm_of_a_weight_is_taken_of_its_shards() -> None:
    text = """
    old# = ReadVariableOp(w#) [4] @d#
    length# = L2Loss(old#) {T=1} [] @d#
    moved# = Mul(sum#, length#) [4] @d#
    step# = AssignSubVariableOp(w#, moved#) @d#
    """
    update, body = update_of(text)
    assert [*body] == ["old0", "length0", "moved0", "step0"]
    assert [v.key for v in update.weights] == ["w"]
    assert SHAPES["w"] == (4,)

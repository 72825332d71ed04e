"""What one replica can do alone where shards cannot be computed, and what it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph.text_graph import OWNERS_DIALECT
from tests.weight_update.analysis.steps import SHAPES, STEP, analysis_of, reasons_of
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.weight_update.analysis.types import Analysis, OperandKind, WeightUpdate

# No rule names Cumsum: it needs all elements at once, as a matrix product does.
CUMSUM = "total# = Cumsum(sum#) [4] @d#\n"
MOMENTUM = """
put# = AssignAddVariableOp(m#, sum#) @d#
moved# = ReadVariableOp(m#) [4] @d# ^put#
total# = Cumsum(moved#) [4] @d#
step# = AssignSubVariableOp(w#, total#) @d#
"""


def found(text: str, **keywords: Any) -> Analysis:
    """The analysis of a step on replicas of which one may own an update."""
    return analysis_of(text, **{"variables": {"w": (4,)}, "dialect": OWNERS_DIALECT, **keywords})


def owned(text: str, **keywords: Any) -> WeightUpdate:
    """The one update, which is a whole one."""
    analysis = found(text, **keywords)
    assert analysis.refused == ()
    (update,) = analysis.updates
    assert update.whole
    return update


def refused(text: str, **keywords: Any) -> str:
    """The one reason why the update of w is left alone."""
    analysis = found(text, **keywords)
    assert analysis.updates == ()
    (reason,) = reasons_of(analysis).values()
    return reason


def types(update: WeightUpdate) -> list[str]:
    return [op.type for op in update.body]


def test_an_op_without_a_rule_is_left_to_one_replica() -> None:
    update = owned(CUMSUM + STEP.format("total#"))
    assert types(update) == ["Cumsum", "AssignSubVariableOp"]
    assert update.body[0].ops == ("total0", "total1")
    assert update.body[0].operands[0].kind is OperandKind.GRADIENT
    assert update.body[1].operands[1].kind is OperandKind.WHOLE


def test_where_no_replica_can_own_an_update_it_is_left_alone() -> None:
    analysis = analysis_of(CUMSUM + STEP.format("total#"), variables={"w": (4,)})
    assert reasons_of(analysis) == {"w": "no rule for Cumsum (total0)"}


def test_what_can_be_cut_is_cut() -> None:
    analysis = found("moved# = Square(sum#) [4] @d#\n" + STEP.format("moved#"))
    assert [u.whole for u in analysis.updates] == [False]


def test_slots_belong_to_it() -> None:
    update = owned(MOMENTUM, variables=SHAPES)
    assert [(v.key, v.is_slot) for v in update.variables] == [("w", False), ("m", True)]


def test_a_slot_may_have_another_shape_than_the_weight() -> None:
    text = """
    square# = MatMul(sum#, sum#) [4,4] @d#
    put# = AssignAddVariableOp(m#, square#) @d#
    side# = ReadVariableOp(m#) [4,4] @d# ^put#
    moved# = MatMul(side#, sum#) [4] @d#
    """
    update = owned(text + STEP.format("moved#"), variables={"w": (4,), "m": (4, 4)})
    assert [(v.key, v.shape) for v in update.slots] == [("m", (4, 4))]


def test_a_slot_that_is_read_elsewhere_stays_whole() -> None:
    text = MOMENTUM + "look# = Square(moved#) [4] @d#\nprint# = Print(look#) @d#\n"
    update = owned(text, variables=SHAPES)
    assert update.slots == ()
    assert [v.key for v in update.whole_slots] == ["m"]


def test_others_may_look_at_the_gradient_and_at_values_of_the_body() -> None:
    text = CUMSUM + STEP.format("total#") + "print# = Print(total#) @d#\n"
    text += "norm# = L2Loss(sum#) [] @d#\nshow# = Print(norm#) @d#\n"
    update = owned(text, outputs=["norm0"])
    assert types(update) == ["Cumsum", "AssignSubVariableOp"]


def test_a_norm_of_its_own_belongs_to_the_body_and_a_norm_of_all_does_not() -> None:
    text = """
    y# = Placeholder() [4] @d#
    h# = Square(y#) [4] @d#
    other# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    mine# = L2Loss(sum#) [] @d#
    yours# = L2Loss(other#) [] @d#
    both# = AddV2(mine#, yours#) [] @d#
    long# = Mul(sum#, both#) [4] @d#
    total# = Cumsum(long#) [4] @d#
    last# = L2Loss(total#) [] @d#
    even# = Mul(total#, last#) [4] @d#
    step# = AssignSubVariableOp(w#, even#) @d#
    longer# = Mul(other#, both#) [4] @d#
    stepped# = AssignSubVariableOp(u#, longer#) @d#
    """
    analysis = found(text, variables={"w": (4,), "u": (4,)}, trainable=("w", "u"))
    (w,) = (u for u in analysis.updates if u.whole)
    assert [op.ops[0] for op in w.body] == [
        *("mine0", "long0", "total0", "last0", "even0", "step0"),
    ]
    # The other update looks at a value of this one, and is cut all the same.
    assert [u.name for u in analysis.updates if not u.whole] == ["u"]


def test_what_two_updates_have_in_common_stays_on_every_replica() -> None:
    text = """
    y# = Placeholder() [4] @d#
    h# = Square(y#) [4] @d#
    other# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    a# = ReadVariableOp(w#) [4] @d#
    b# = ReadVariableOp(u#) [4] @d#
    mine# = L2Loss(a#) [] @d#
    yours# = L2Loss(b#) [] @d#
    both# = AddV2(mine#, yours#) [] @d#
    one# = Cumsum(sum#) [4] @d#
    two# = Cumsum(other#) [4] @d#
    far# = Mul(one#, both#) [4] @d#
    near# = Mul(two#, both#) [4] @d#
    step# = AssignSubVariableOp(w#, far#) @d# ^a#
    stepped# = AssignSubVariableOp(u#, near#) @d# ^b#
    """
    analysis = found(text, variables={"w": (4,), "u": (4,)}, trainable=("w", "u"))
    bodies = {u.name: [op.ops[0] for op in u.body] for u in analysis.updates}
    assert bodies == {
        "w": ["a0", "mine0", "one0", "far0", "step0"],
        "u": ["b0", "yours0", "two0", "near0", "stepped0"],
    }


def test_weights_whose_gradients_meet_have_one_owner() -> None:
    text = """
    y# = Placeholder() [4] @d#
    h# = Square(y#) [4] @d#
    other# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    all# = Pack(sum#, other#) [2,4] @d#
    moved# = MatMul(all#, all#) [4] @d#
    step# = AssignSubVariableOp(w#, moved#) @d#
    stepped# = AssignSubVariableOp(u#, moved#) @d#
    """
    update = owned(text, variables={"w": (4,), "u": (4,)}, trainable=("w", "u"))
    assert [v.key for v in update.weights] == ["w", "u"]


def test_the_next_forward_pass_is_no_part_of_the_update() -> None:
    text = (
        CUMSUM
        + STEP.format("total#")
        + """
    again# = ReadVariableOp(w#) [4] @d# ^step#
    loss# = MatMul(again#, x#) [4] @d#
    then# = CollectiveReduceV2(loss#, size, key) {merge_op=Add final_op=Id} [4] @d#
    moved# = Square(then#) [4] @d#
    stepped# = AssignSubVariableOp(u#, moved#) @d#
    """
    )
    analysis = found(text, variables={"w": (4,), "u": (4,)}, trainable=("w", "u"))
    assert {u.name: u.whole for u in analysis.updates} == {"w": True, "u": False}


ALONE = "no rule for Cumsum (total0); nor can one replica do it alone: "
LEFT_ALONE = {
    "random numbers of each replica": (
        "n# = RandomUniform() [4] @d#\nmoved# = Mul(total#, n#) [4] @d#\n",
        "each replica runs a RandomUniform of its own (n1)",
    ),
    "an input of each replica": (
        "moved# = Mul(total#, x#) [4] @d#\n",
        "replica 1 computes it from an input of its own (x1)",
    ),
    "constants that differ": (
        "c0 = Const() {value=1} [] @d0\nc1 = Const() {value=2} [] @d1\n"
        "moved# = Mul(total#, c#) [4] @d#\n",
        "it differs from replica 0's c0 (c1)",
    ),
    "a variable that each replica keeps for itself": (
        "own# = ReadVariableOp(rate#) [] @d#\nmoved# = Mul(total#, own#) [4] @d#\n",
        "each replica keeps its own value of rate (rate1)",
    ),
    "a call with an effect": (
        "moved# = StatefulPartitionedCall(total#) {f=&noisy} [4] @d#\n",
        "each replica runs a StatefulPartitionedCall of its own (moved1)",
    ),
    "a branch that takes the handle of another variable": (
        "moved# = If(total#, total#, kept#) {then_branch=&looks else_branch=&looks} [4] @d#\n",
        "If takes the handle of kept (moved0)",
    ),
    "a call that writes another variable": (
        "moved# = StatefulPartitionedCall(total#, kept#) {f=&keeps} [4] @d#\n",
        "each replica runs a StatefulPartitionedCall that writes variables (moved0)",
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_replicas_that_may_differ_are_left_alone(case: str) -> None:
    text, reason = LEFT_ALONE[case]
    refs = {f"rate{r}": VariableRef("rate", r, 2, (), 1, False, f"d{r}") for r in range(2)}
    refs |= {f"kept{r}": VariableRef("kept", r, 2, (4,), 1, True, f"d{r}") for r in range(2)}
    functions = {
        "noisy": ("a", "n = RandomUniform() [4]", "n:output:0"),
        "keeps": ("a h", "w = AssignVariableOp(h, a)", "a"),
        "looks": ("a h", "r = ReadVariableOp(h) [4]", "r:value:0"),
    }
    analysis = found(CUMSUM + text + STEP.format("moved#"), refs=refs, functions=functions)
    assert analysis.updates == ()
    (one,) = analysis.refused
    assert one.refusal.where == "total0"
    assert one.refusal.reason == "no rule for Cumsum; nor can one replica do it alone: " + reason


def test_a_reason_that_is_none_of_rules_stands() -> None:
    text = "moved# = Mul(sum#, x#) [4] @d#\n" + STEP.format("moved#")
    assert refused(text) == "replica 1 computes it from an input of its own (x1)"


TWICE = (
    CUMSUM
    + """
    step# = AssignSubVariableOp(w#, total#) @d#
    read# = {}(w#) [4] @d# ^step#
    used# = Print(read#) @d#
    then# = AssignSubVariableOp(w#, total#) @d# ^read#
    """
)


def test_a_weight_that_is_read_between_two_writes_is_handed_out_after_each() -> None:
    (weight,) = owned(TWICE.format("ReadVariableOp")).variables
    assert weight.versions == (1, 2)


def test_a_weight_that_is_not_read_whole_between_two_writes_is_left_alone() -> None:
    reason = refused(TWICE.format("VariableShape"))
    assert "not all replicas read w before its next write" in reason


def test_a_gradient_that_also_enters_an_update_in_shards_is_left_alone() -> None:
    text = CUMSUM + STEP.format("total#") + "put# = AssignAddVariableOp(n#, total#) @d#\n"
    refs = {f"n{r}": VariableRef("n", r, 2, (4,), 1, False, f"d{r}") for r in range(2)}
    reason = refused(text, refs=refs)
    assert "not a mirrored variable with a component on every replica" in reason

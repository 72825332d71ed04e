"""Every reason not to shard, provoked by the smallest step that has it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import (
    MOMENTUM,
    REDUCED,
    SHAPES,
    STEP,
    analysis_of,
    reasons_of,
    refused,
    sharded,
)
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.weight_update.analysis.analyze import analyze


def test_an_op_without_a_rule() -> None:
    text = "total# = Cumsum(sum#) [4] @d#\n" + STEP.format("total#")
    assert refused(text) == "no rule for Cumsum (total0)"


def test_an_op_without_a_rule_before_a_slot_that_the_weight_is_updated_from() -> None:
    text = "total# = Cumsum(sum#) [4] @d#\n" + MOMENTUM.replace("sum#", "total#")
    assert refused(text, variables=SHAPES) == "no rule for Cumsum (total0)"


def test_a_gradient_that_is_broadcast() -> None:
    text = """
    grid# = Const() {value=1} [4,4] @d#
    moved# = Mul(sum#, grid#) [4,4] @d#
    """
    reason = refused(text + STEP.format("moved#"), variables={"w": (4, 4)})
    assert reason == "it broadcasts [4] over [4, 4] (moved0)"


def test_a_sum_over_axes_that_are_not_known() -> None:
    text = """
    rank = Const() {value=1} []
    axes# = Neg(rank) [1] @d#
    norm# = Sum(sum#, axes#) [] @d#
    moved# = Mul(sum#, norm#) [4] @d#
    """
    reason = refused(text + STEP.format("moved#"), variables={"w": (4,)})
    assert reason == "the axes of its sum are not known when traced (norm0)"


def test_a_sum_over_whole_numbers() -> None:
    text = """
    axes = Const() {value=0} [1]
    count# = Cast(sum#) {DstT=3 SrcT=1} [4] @d#
    total# = Sum(count#, axes) {T=3} [] @d#
    scale# = Cast(total#) {DstT=1 SrcT=3} [] @d#
    moved# = Mul(sum#, scale#) [4] @d#
    """
    reason = refused(text + STEP.format("moved#"), variables={"w": (4,)})
    assert reason == "no sum over the replicas is known for its element type, int32 (total0)"


def test_a_returned_gradient() -> None:
    text = STEP.format("sum#")
    assert (
        refused(text, outputs=["sum0"])
        == "the step returns a value computed from its gradient (sum0)"
    )


def test_a_returned_value_of_the_body() -> None:
    text = "old# = ReadVariableOp(m#) [4] @d#\nlike# = Add(old#, sum#) [4] @d#\n"
    text += (
        "twice# = Square(old#) [4] @d# ^like#\nput# = AssignAddVariableOp(m#, twice#) @d# ^old#\n"
    )
    text += "then# = AssignAddVariableOp(m#, like#) @d# ^put#\n" + STEP.format("like#")
    reason = refused(text, variables=SHAPES, outputs=["twice1"])
    assert reason == "the step returns a value of the update (twice1)"


def test_something_else_that_looks_at_the_gradient() -> None:
    # On replica 1 only: the slice follows replica 0, the check looks at all.
    text = STEP.format("sum#") + "norm = L2Loss(sum1) [] @d1\nprint = Print(norm) @d1\n"
    assert refused(text) == "L2Loss also looks at a value of the update (norm)"


def test_constants_that_differ_between_replicas() -> None:
    text = "c0 = Const() {value=1} [] @d0\nc1 = Const() {value=2} [] @d1\n"
    text += "moved# = Mul(sum#, c#) [4] @d#\n" + STEP.format("moved#")
    assert refused(text) == "it differs from replica 0's c0 (c1)"


def test_random_numbers_of_each_replica() -> None:
    text = "n# = RandomUniform() [4] @d#\nmoved# = Mul(sum#, n#) [4] @d#\n" + STEP.format("moved#")
    assert refused(text) == "each replica runs a RandomUniform of its own (n1)"


def test_an_input_of_each_replica() -> None:
    text = "moved# = Mul(sum#, x#) [4] @d#\n" + STEP.format("moved#")
    assert refused(text) == "replica 1 computes it from an input of its own (x1)"


def test_one_random_op_for_all_replicas_is_no_reason() -> None:
    text = "n = RandomUniform() [4] @d0\nmoved# = Mul(sum#, n) [4] @d#\n" + STEP.format("moved#")
    assert sharded(analysis_of(text, variables={"w": (4,)})) == ["w"]


def test_a_variable_that_each_replica_keeps_for_itself() -> None:
    text = "rate# = ReadVariableOp(own#) [] @d#\nmoved# = Mul(sum#, rate#) [4] @d#\n"
    refs = {f"own{r}": VariableRef("own", r, 2, (), 1, False, f"d{r}") for r in range(2)}
    reason = refused(text + STEP.format("moved#"), refs=refs)
    assert reason == "each replica keeps its own value of own (own1)"


def test_variables_that_are_not_each_others_component() -> None:
    text = "rate0 = ReadVariableOp(a0) [] @d0\nrate1 = ReadVariableOp(b1) [] @d1\n"
    text += "moved# = Mul(sum#, rate#) [4] @d#\n" + STEP.format("moved#")
    reason = refused(text, variables={"w": (4,), "a": (), "b": ()})
    assert reason == "replicas 0 and 1 use different variables (b1)"


def test_a_read_after_other_writes_than_on_replica_0() -> None:
    text = """
    rate0 = ReadVariableOp(a0) [] @d0
    c = Const() [] @d0
    set0 = AssignVariableOp(a0, c) @d0 ^rate0
    set1 = AssignVariableOp(a1, c) @d1
    rate1 = ReadVariableOp(a1) [] @d1 ^set1
    moved# = Mul(sum#, rate#) [4] @d#
    """
    reason = refused(text + STEP.format("moved#"), variables={"w": (4,), "a": ()})
    assert reason == "it reads its variable after other writes than on replica 0 (rate1)"


def test_different_ops_in_the_same_part() -> None:
    text = "moved0 = Neg(sum0) [4] @d0\nmoved1 = Square(sum1) [4] @d1\n" + STEP.format("moved#")
    assert refused(text) == "replica 1 has a Square where replica 0 has a Neg, moved0 (moved1)"


def test_operands_in_another_order() -> None:
    text = "half# = Const() {value=2} [] @d#\n"
    text += "moved0 = Sub(sum0, half0) [4] @d0\nmoved1 = Sub(half1, sum1) [4] @d1\n"
    assert (
        refused(text + STEP.format("moved#")) == "replicas 0 and 1 use different gradients (half1)"
    )


def test_the_outputs_of_an_op_in_another_order() -> None:
    text = "s# = SplitV(size) [] [] @d#\n"
    text += "moved0 = Mul(sum0, s0:1) [4] @d0\nmoved1 = Mul(sum1, s1) [4] @d1\n"
    assert (
        refused(text + STEP.format("moved#"))
        == "it takes other values on replica 1 than on replica 0 (moved1)"
    )


def test_one_op_in_two_parts() -> None:
    text = "a# = Const() {value=1} [] @d#\nb# = Const() {value=1} [] @d#\n"
    text += "moved0 = Mul(sum0, a0) [4] @d0\nmoved1 = Mul(sum1, a1) [4] @d1\n"
    text += "more0 = Mul(moved0, a0) [4] @d0\nmore1 = Mul(moved1, b1) [4] @d1\n"
    reason = refused(text + STEP.format("more#"))
    assert reason.startswith("replica 1 has both b1 and this op for a0 alone")


def test_another_gradient_on_the_other_replica() -> None:
    text = """
    h# = Neg(x#) [4] @d#
    more# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    step0 = AssignSubVariableOp(w0, sum0) @d0
    step1 = AssignSubVariableOp(w1, more1) @d1
    """
    assert refused(text) == "replicas 0 and 1 use different gradients (more1)"


def test_another_number_of_writes_on_a_replica() -> None:
    text = STEP.format("sum#") + "again = AssignSubVariableOp(w1, sum1) @d1 ^step1\n"
    assert refused(text) == "replica 1 writes it another number of times than replica 0 (w)"


def test_a_race() -> None:
    text = STEP.format("sum#") + "again# = AssignSubVariableOp(w#, sum#) @d#\n"
    assert refused(text) == "nothing orders it after step0, which uses w0 too (again0)"


def test_a_step_and_a_loop_of_steps_after_it() -> None:
    text = STEP.format("sum#") + "rest# = While(w#) {cond=steps body=steps} @d# ^step#\n"
    functions = {"steps": ("h", "put = AssignAddVariableOp(h, h)", "h")}
    reason = refused(text, functions=functions, outputs=["rest0", "rest1"])
    loop = "While, a branch, a loop or a function that the step calls"
    assert reason == f"{loop}, may write w as well (rest0)"


def test_a_read_between_a_write_and_a_branch_that_works_on_the_weight() -> None:
    text = STEP.format("sum#") + "seen# = ReadVariableOp(w#) [4] @d# ^step#\n"
    text += "total# = L2Loss(seen#) [] @d#\n"
    text += "odd# = StatefulPartitionedCall(w#) {f=scales} @d# ^seen#\n"
    functions = {"scales": ("h", "put = AssignAddVariableOp(h, h)", "h")}
    given: dict[str, Any] = {"variables": {"w": (4,)}, "trainable": ("w",)}
    outputs = ["total0", "total1"]
    view = view_of(REDUCED + text, replicas=2, outputs=outputs, functions=functions, **given)
    branches = {f"odd{replica}": {"w": frozenset({"w"})} for replica in range(2)}
    reasons = reasons_of(analyze(view.with_part_wise(branches), DIALECT))
    assert reasons == {"w": "it reads w between a write and a branch that works on it (odd0)"}


def test_an_unknown_use_of_a_handle() -> None:
    text = STEP.format("sum#")
    text += "i# = Const() [4] @d#\nodd# = ResourceScatterAdd(w#, i#, i#) @d# ^step#\n"
    assert (
        refused(text)
        == "ResourceScatterAdd writes some rows of what a dense gradient updates (odd0)"
    )


def test_variables_of_different_size() -> None:
    text = "s# = Const() {value=1} [] @d#\nput# = AssignVariableOp(m#, s#) @d#\n"
    text += "both# = ResourceApplyMomentum(w#, m#, s#, sum#, s#) @d# ^put#\n"
    reason = refused(text, variables={"w": (4,), "m": (2,)})
    assert reason == "it mixes variables of different sizes (both0)"


def test_a_written_value_of_another_size() -> None:
    text = "zero# = Const() {value=0} [] @d#\nput# = AssignSubVariableOp(w#, sum#) @d#\n"
    text += "clear# = AssignVariableOp(w#, zero#) @d# ^put#\n"
    assert refused(text) == "it writes a value of shape [], not the variable's (clear0)"


def test_an_update_that_reaches_no_trainable_variable() -> None:
    reason = refused(MOMENTUM, variables=SHAPES, trainable=())
    assert reason == "its update reaches no trainable variable (m)"


def test_a_variable_that_is_not_mirrored() -> None:
    ref = VariableRef("alone", 0, 1, (4,), 1, False, "d0")
    text = STEP.format("sum#") + "put = AssignAddVariableOp(alone, sum0) @d0\n"
    reason = refused(text, refs={"alone": ref})
    assert reason == "it is not a mirrored variable with a component on every replica (alone)"


def test_a_variable_that_only_one_replica_holds() -> None:
    ref = VariableRef("half", 0, 2, (4,), 1, True, "d0")
    text = STEP.format("sum#") + "put = AssignAddVariableOp(half, sum0) @d0\n"
    reason = refused(text, refs={"half": ref})
    assert reason == "the step does not touch it on replica 1 (half)"


def test_a_gradient_that_enters_a_fused_update_as_a_scalar() -> None:
    text = "s# = Const() {value=1} [4] @d#\n"
    text += "both# = ResourceApplyMomentum(w#, m#, sum#, s#, s#) @d#\n"
    reason = refused(text, variables=SHAPES)
    assert reason.startswith("its gradient enters ResourceApplyMomentum as operand 2, ")


def test_a_computed_scalar_of_a_fused_update() -> None:
    text = "s# = Const() {value=1} [] @d#\nm_# = ReadVariableOp(m#) [4] @d#\n"
    text += "both# = ResourceApplyMomentum(w#, m#, m_#, sum#, s#) @d#\n"
    assert (
        refused(text, variables=SHAPES)
        == "operand 2 of ResourceApplyMomentum is not a scalar (both0)"
    )


def test_a_shape_that_is_not_known_when_traced() -> None:
    text = "odd = Where(x0) [?]\nmoved# = Mul(sum#, odd) [4] @d#\n"
    assert refused(text + STEP.format("moved#")) == (
        "the shape of its result is not known when traced (odd)"
    )


def test_a_refusal_leaves_other_variables_sharded() -> None:
    text = """
    h# = Neg(x#) [4] @d#
    more# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
    sorted# = Cumsum(more#) [4] @d#
    odd# = AssignSubVariableOp(v#, sorted#) @d#
    """
    variables = {**SHAPES, "v": (4,)}
    analysis = analysis_of(MOMENTUM + text, variables=variables, trainable=("w", "v"))
    assert sharded(analysis) == ["w"]
    assert reasons_of(analysis) == {"v": "no rule for Cumsum (sorted0)"}


@pytest.mark.parametrize("replicas", [2, 3, 5])
def test_the_last_replica_is_looked_at_like_the_second(replicas: int) -> None:
    text = "c# = Const() {value=1} [] @d#\nmoved# = Mul(sum#, c#) [4] @d#\n" + STEP.format("moved#")
    same = analysis_of(text, variables={"w": (4,)}, replicas=replicas)
    assert sharded(same) == ["w"]
    last = replicas - 1
    odd = text.replace("c# = Const() {value=1} [] @d#\n", "")
    odd = (
        "".join(
            f"c{r} = Const() {{value={2 if r == last else 1}}} [] @d{r}\n" for r in range(replicas)
        )
        + odd
    )
    reason = refused(odd, replicas=replicas)
    assert reason == f"it differs from replica 0's c0 (c{last})"


def test_an_own_value_refuses_every_update_that_it_enters() -> None:
    analysis = analysis_of(
        """
        own# = Placeholder() [4] @d#
        mixed# = Neg(own#) [4] @d#
        h# = Square(mixed#) [4] @d#
        other# = CollectiveReduceV2(h#, size, key) {merge_op=Add final_op=Id} [4] @d#
        a# = Mul(sum#, mixed#) [4] @d#
        put# = AssignSubVariableOp(w#, a#) @d#
        b# = Mul(other#, mixed#) [4] @d#
        also# = AssignSubVariableOp(v#, b#) @d#
        """,
        variables={"w": (4,), "v": (4,)},
        trainable=("w", "v"),
    )
    assert set(reasons_of(analysis)) == {"w", "v"}

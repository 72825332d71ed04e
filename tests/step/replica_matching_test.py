"""What is the same on all replicas, however each of them comes by it."""

from __future__ import annotations

from typing import Any

from tests.graph.text_graph import OWNERS_DIALECT
from tests.weight_update.analysis.steps import (
    SHAPES,
    STEP,
    analysis_of,
    reasons_of,
    refused,
    sharded,
)
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.weight_update.analysis.types import WeightUpdate


def update_of(text: str, **keywords: Any) -> WeightUpdate:
    analysis = analysis_of(text, **{"variables": {"w": (4,)}, **keywords})
    assert reasons_of(analysis) == {}
    (update,) = analysis.updates
    return update


def test_a_read_behind_an_assignment_is_what_was_assigned() -> None:
    """On replica 1 the same number is assigned once more before it is read."""
    text = """
    old# = ReadVariableOp(a#) [] @d#
    c = Const() {value=2} []
    new# = Mul(old#, c) [] @d#
    set# = AssignVariableOp(a#, new#) @d#
    more1 = AssignVariableOp(a1, new1) @d1 ^set1
    rate0 = ReadVariableOp(a0) [] @d0 ^set0
    rate1 = ReadVariableOp(a1) [] @d1 ^more1
    moved# = Mul(sum#, rate#) [4] @d#
    """
    steps = text + STEP.format("moved#")
    assert sharded(analysis_of(steps, variables={"w": (4,), "a": ()})) == ["w"]
    reason = refused(
        steps.replace("more1 = AssignVariableOp", "more1 = AssignAddVariableOp"),
        variables={"w": (4,), "a": ()},
    )
    assert reason == "it reads its variable after other writes than on replica 0 (rate1)"
    reason = refused(
        steps.replace("more1 = AssignVariableOp(a1, new1)", "more1 = AssignVariableOp(a1, old1)"),
        variables={"w": (4,), "a": ()},
    )
    assert reason == "replica 1 has a ReadVariableOp where replica 0 has a Mul, new0 (old1)"


COUNTED = {
    "counts": ("h", "c = Const()\na = AssignAddVariableOp(h, c:output:0)", "c:output:0"),
    "looks": ("h", "r = ReadVariableOp(h)", "r:value:0"),
    "draws": ("h", "n = RandomUniform()", "n:output:0"),
}
COUNTING = """
new = Const() {value=1} []
rate# = If(new, a#) {then_branch=&counts else_branch=&looks} [] @d#
moved# = Mul(sum#, rate#) [4] @d#
"""


def test_a_branch_that_writes_what_all_replicas_hold_is_no_reason() -> None:
    text = COUNTING + STEP.format("moved#")
    analysis = analysis_of(text, variables={"w": (4,), "a": ()}, functions=COUNTED)
    assert sharded(analysis) == ["w"]


def test_a_branch_that_sees_its_variable_after_other_writes() -> None:
    text = COUNTING.replace("rate#", "more1 = AssignAddVariableOp(a1, new) @d1\n    rate#", 1)
    text = text.replace("[] @d#\nmoved", "[] @d# ^more1\nmoved")
    reason = refused(
        text + STEP.format("moved#"), variables={"w": (4,), "a": ()}, functions=COUNTED
    )
    assert reason == "it reads its variable after other writes than on replica 0 (rate1)"


def test_a_branch_that_draws_random_numbers() -> None:
    text = COUNTING.replace("&looks", "&draws") + STEP.format("moved#")
    reason = refused(text, variables={"w": (4,), "a": ()}, functions=COUNTED)
    assert reason == "each replica runs a If of its own (rate1)"


def test_what_replica_0_computes_from_its_gradient_for_all() -> None:
    """A check for overflow, say, made once for all replicas."""
    text = """
    axes = Const() {value=0} [1]
    twice = Neg(sum0) [4] @d0
    norm = Sum(twice, axes) [] @d0
    scaled# = Mul(sum#, norm) [4] @d#
    moved# = Mul(scaled#, twice) [4] @d#
    """
    update = update_of(text + STEP.format("moved#"))
    assert [op.ops for op in update.body] == [
        ("twice", "twice"),
        ("norm", "norm"),
        ("scaled0", "scaled1"),
        ("moved0", "moved1"),
        ("step0", "step1"),
    ]


def test_what_another_replica_computes_for_all() -> None:
    text = "twice = Neg(sum1) [4] @d1\nmoved# = Mul(sum#, twice) [4] @d#\n"
    update = update_of(text + STEP.format("moved#"))
    assert next(op.ops for op in update.body) == ("twice", "twice")


def test_what_one_replica_computes_and_another_also_computes_is_not_mixed_up() -> None:
    text = "twice# = Neg(sum#) [4] @d#\nmoved0 = Mul(sum0, twice0) [4] @d0\n"
    text += "moved1 = Mul(sum1, twice0) [4] @d1\nmore# = Mul(moved#, twice#) [4] @d#\n"
    reason = refused(text + STEP.format("more#"))
    assert reason.startswith("replica 1 has both twice1 and this op for twice0 alone")


def test_a_slot_that_replica_0_reads_for_all() -> None:
    text = """
    put# = AssignAddVariableOp(m#, sum#) @d#
    moved = ReadVariableOp(m0) [4] @d0 ^put0
    step# = AssignSubVariableOp(w#, moved) @d#
    """
    update = update_of(text, variables=SHAPES)
    assert [v.key for v in update.slots] == ["m"]
    assert ("moved", "moved") in [op.ops for op in update.body]


def test_no_one_owns_a_slot_that_replica_0_reads_for_all() -> None:
    """Only the owner's component holds what it did, and the owner need not be replica 0."""
    text = """
    put# = AssignAddVariableOp(m#, sum#) @d#
    moved = ReadVariableOp(m0) [4] @d0 ^put0
    total# = Cumsum(moved) [4] @d#
    step# = AssignSubVariableOp(w#, total#) @d#
    """
    reason = refused(text, variables=SHAPES, dialect=OWNERS_DIALECT)
    assert reason.startswith("no rule for Cumsum; nor can one replica do it alone: ")
    assert "all replicas use what replica 0 reads (moved)" in reason


RATE = "rate0 = ReadVariableOp(a{}) [] @d0{}\nrate1 = ReadVariableOp(a{}) [] @d1{}\n"
BY_RATE = "moved# = Mul(sum#, rate#) [4] @d#\n" + STEP.format("moved#")


def test_each_others_component_of_a_mirrored_variable() -> None:
    text = RATE.format(1, "", 0, "") + BY_RATE
    assert sharded(analysis_of(text, variables={"w": (4,), "a": ()})) == ["w"]
    set_ = "c = Const() {value=1} []\nset# = AssignVariableOp(a#, c) @d#\n"
    text = set_ + RATE.format(1, " ^set1", 0, " ^set0") + BY_RATE
    assert sharded(analysis_of(text, variables={"w": (4,), "a": ()})) == ["w"]


def test_each_others_component_after_other_writes() -> None:
    text = """
    c = Const() {value=1} []
    rate1 = ReadVariableOp(a0) [] @d1
    add0 = AssignAddVariableOp(a0, c) @d0 ^rate1
    add1 = AssignAddVariableOp(a1, c) @d1
    rate0 = ReadVariableOp(a1) [] @d0 ^add1
    """
    reason = refused(text + BY_RATE, variables={"w": (4,), "a": ()})
    assert reason == "it reads its variable after other writes than on replica 0 (rate1)"


def test_each_others_component_of_a_variable_of_each_replica() -> None:
    refs = {f"a{r}": VariableRef("a", r, 2, (), 1, False, f"d{r}") for r in range(2)}
    text = RATE.format(1, "", 0, "") + BY_RATE
    assert refused(text, refs=refs) == "replicas 0 and 1 use different variables (a0)"


# A number that the replicas sum besides their gradient, and a gradient divided by it.
COUNTED_WORDS = """
n# = Sum(x#) [] @d#
key_2 = Const() {value=2}
count# = CollectiveReduceV2(n#, size, key_2) {merge_op=Add final_op=Id} [] @d#
mean# = RealDiv(sum#, count#) [4] @d#
"""


def test_a_sum_that_gradients_are_divided_by_joins_no_updates() -> None:
    text = COUNTED_WORDS + STEP.format("mean#")
    text += "other# = AssignSubVariableOp(v#, scaled#) @d#\n"
    text = text.replace(
        "mean#",
        "h# = Square(x#) [4] @d#\nkey_3 = Const() {value=3}\n"
        "total# = CollectiveReduceV2(h#, size, key_3) {merge_op=Add final_op=Id} [4] @d#\n"
        "scaled# = Mul(total#, count#) [4] @d#\nmean#",
        1,
    )
    variables = {"w": (4,), "v": (4,)}
    analysis = analysis_of(text, variables=variables, trainable=("w", "v"))
    assert reasons_of(analysis) == {}
    assert {u.name: u.reductions for u in analysis.updates} == {"w": (0,), "v": (2,)}
    divided = analysis.updates[0].body[0].operands[1]
    assert [str(value) for value in divided.values] == ["count0", "count1"]


def test_a_weight_whose_gradient_others_use_stays_whole_and_they_do_not() -> None:
    text = COUNTED_WORDS + STEP.format("mean#")
    text += "other# = AssignSubVariableOp(b#, count#) @d#\n"
    variables = {"w": (4,), "b": ()}
    analysis = analysis_of(text, variables=variables, trainable=("w", "b"))
    assert sharded(analysis) == ["w"]
    assert reasons_of(analysis) == {
        "b": "updates of larger variables use its gradient too, and need all of it on every replica"
        " (count0)"
    }


def test_a_sum_that_replicas_use_in_different_shapes() -> None:
    text = COUNTED_WORDS.replace("RealDiv(sum#, count#)", "RealDiv(sum#, used#)")
    used = "used{0} = Reshape(count{0}, size) {1} @d{0}\n"
    added = used.format(0, "[1]") + used.format(1, "[1,1]")
    text = text.replace("mean#", f"{added}mean#", 1)
    reason = refused(text + STEP.format("mean#"))
    assert reason.startswith("replicas 0 and 1 use a gradient in different shapes")

"""Gradients are followed to the variables written with them; what shares one is followed as one."""

from __future__ import annotations

import pytest

from tests.graph.text_graph import DIALECT, view_of
from tests.weight_update.analysis.steps import MOMENTUM, REDUCED, STEP
from tf_wu_shard.graph.op import Value
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.weight_update.analysis.forward_slice import (
    ForwardSlice,
    entangled,
    follow,
    is_broadcast,
    written_keys,
)
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph

# A second gradient.
OTHER = """
other# = Tanh(x#) [4] @d#
sum_b# = CollectiveReduceV2(other#, size, key) {merge_op=Add final_op=Id} [4] @d#
"""


def followed(text: str, outputs: tuple[str, ...] = ()) -> list[ForwardSlice]:
    """What each reduced gradient of a step reaches."""
    shapes = dict.fromkeys(("w", "b", "m"), (4,))
    view = view_of(REDUCED + text, variables=shapes, trainable=("w", "b"), outputs=outputs)
    carried, _ = DIALECT.recognise(view)
    return follow(ReducedGraph.of(view, gradient_reductions(view, carried, []), DIALECT.replicas))


def test_a_weight_is_reached_by_way_of_the_slot_that_is_read_back() -> None:
    (slice_,) = followed(MOMENTUM)
    assert slice_.variables == ["m", "w"] and slice_.refusal is None and not slice_.broadcast


def test_a_read_of_what_was_written_is_followed_only_where_all_of_it_can_be() -> None:
    text = """
    put# = AssignAddVariableOp(m#, sum#) @d#
    moved# = ReadVariableOp(m#) [4] @d# ^put#
    odd# = TopKV2(moved#, size) [4] @d#
    step# = AssignSubVariableOp(w#, odd#) @d#
    """
    (slice_,) = followed(text)
    assert slice_.variables == ["m"] and slice_.refusal is None


# Gradients are added up; before, what the steps before have left goes into another variable.
ADDED_UP = """
left# = ReadVariableOp(m#) [4] @d#
apply# = AssignSubVariableOp(b#, left#) @d#
put# = AssignAddVariableOp(m#, sum#) @d# ^left#
"""


def test_what_the_steps_before_have_left_is_followed_where_nothing_else_leads_to_a_weight() -> None:
    (slice_,) = followed(ADDED_UP)
    assert slice_.variables == ["m", "b"] and slice_.refusal is None
    # The weight of the gradient is another one: what else reads the slot does so from outside.
    (slice_,) = followed(ADDED_UP + STEP.format("sum#"))
    assert slice_.variables == ["m", "w"]
    # So where another gradient leads to the weight.
    both = followed(OTHER + ADDED_UP + "other_step# = AssignSubVariableOp(b#, sum_b#) @d#\n")
    assert [slice_.variables for slice_ in both] == [["m"], ["b"]]
    (slice_,) = followed(ADDED_UP.replace("left#)", "odd#)") + "odd# = TopKV2(left#, size) [4] @d#")
    assert slice_.variables == ["m"]


@pytest.mark.parametrize(
    ("text", "outputs", "where"),
    [
        ("odd# = TopKV2(sum#, size) [4] @d#\n" + STEP.format("odd#"), (), "odd0"),
        (STEP.format("sum#"), ("sum0", "sum1"), "sum0"),
        ("step# = ResourceApplyGradientDescent(w#, sum#, x#) @d#\n", (), "step0"),
    ],
    ids=("no rule", "returned", "another operand"),
)
def test_what_it_cannot_be_followed_through_is_named(
    text: str, outputs: tuple[str, ...], where: str
) -> None:
    (slice_,) = followed(text, outputs)
    assert slice_.refusal is not None and slice_.refusal.where == where


def test_a_sum_ends_the_way() -> None:
    (slice_,) = followed("norm# = L2Loss(sum#) [] @d#\nodd# = TopKV2(norm#, size) [] @d#\n")
    assert slice_.variables == [] and slice_.refusal is None


def test_one_row_of_something_larger_is_no_gradient_of_that() -> None:
    text = "all# = BroadcastTo(sum#, size) [3,4] @d#\nlarger# = AddV2(sum#, wide#) [3,4] @d#\n"
    view = view_of(REDUCED + "wide# = Placeholder() [3,4]\n" + text)
    value = Value("sum0")
    assert is_broadcast(view, value, view.ops["larger0"], 0)
    # By an op that is no rule's, nothing is known to become larger.
    assert not is_broadcast(view, value, view.ops["all0"], 0)
    assert not is_broadcast(view, Value("wide0"), view.ops["larger0"], 1)
    wide, larger = "wide# = Placeholder() [3,4]\n", text.splitlines()[1] + "\n"
    (slice_,) = followed(wide + larger, ("larger0", "larger1"))
    assert slice_.broadcast


def test_slices_that_write_one_variable_are_one() -> None:
    both = "put# = AssignAddVariableOp(m#, sum#) @d#\n" + STEP.format("sum#")
    more = "more# = AssignAddVariableOp(m#, sum_b#) @d# ^put#\n"
    own = "step_b# = AssignSubVariableOp(b#, sum_b#) @d#\n"
    apart = entangled(followed(OTHER + both + own))
    assert [(s.keys, {*s.variables}) for s in apart] == [({0}, {"m", "w"}), ({1}, {"b"})]
    (joined,) = entangled(followed(OTHER + both + own + more))
    assert joined.keys == {0, 1} and {*joined.variables} == {"m", "w", "b"}


def test_a_third_slice_joins_two_that_were_apart() -> None:
    slices = [
        ForwardSlice({key}, list(variables), None)
        for key, variables in enumerate(("ab", "cd", "bc", "e"))
    ]
    found = entangled(slices)
    assert [(one.keys, sorted(one.variables)) for one in found] == [
        ({0, 1, 2}, ["a", "b", "c", "d"]),
        ({3}, ["e"]),
    ]


def test_a_fused_update_writes_all_of_its_first_handles() -> None:
    text = "step# = ResourceApplyMomentum(w#, m#, size, sum#, key) @d#\nput# = Tanh(m#) [] @d#\n"
    view = view_of("m# = Placeholder() {T=20}\n" + REDUCED + text, variables={"w": (4,)})
    # Of a handle of which nothing is known, the op that yields it.
    assert written_keys(view, view.ops["step0"]) == ["w", "m0"]
    assert written_keys(view, view.ops["put0"]) == []

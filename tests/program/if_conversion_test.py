"""Branches that take reduced gradients are written out; others, and what must not be, stay."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.program.branching import (
    Given,
    Step,
    Strategies,
    accumulated,
    applied,
    branches,
    converted,
    of_open_shape,
    traced,
)
from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import BRANCHES
from tf_wu_shard.graph.op import Value
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.if_conversion import if_converted
from tf_wu_shard.program.prepare import sums
from tf_wu_shard.program.reduced_operands import calling_with_reduced_operands
from tf_wu_shard.weight_update.analysis.types import Analysis, RefusedUpdate


def clipped(given: Given) -> None:
    used = tf.cond(given.same > 0, lambda: given.total * 0.1, lambda: tf.identity(given.total))
    tf.cond(given.same > 1, lambda: given.weight.assign_sub(used), lambda: given.same)


def local(given: Given) -> None:
    tf.cond(given.same > 0, lambda: given.weight.assign_sub(given.own), lambda: given.same)


def of_its_norm(given: Given) -> None:
    norm = tf.norm(given.total)
    tf.cond(given.same > 0, lambda: given.weight.assign_sub(given.own * norm), lambda: given.same)


@pytest.mark.parametrize(
    ("step", "count"), [(applied, 1), (accumulated, 1), (clipped, 2), (local, 0), (of_its_norm, 0)]
)
def test_reduced_gradients_are_followed_to_branches(
    emulated: Strategies, step: Step, count: int
) -> None:
    _, captured, program = traced(emulated(2), step)
    view = captured.view
    assert len(calling_with_reduced_operands(view, program, sums(view), BRANCHES)) == count


@pytest.mark.parametrize("step", [applied, accumulated, clipped])
def test_a_branch_becomes_a_read_a_selection_and_a_write(emulated: Strategies, step: Step) -> None:
    found = converted(emulated(2), step)
    assert branches(found) == [], found.kept_branches
    view = found.view
    (write,) = (op for op in view if op.type == "AssignVariableOp")
    select = view.producer(write.inputs[1])
    assert select.type == "SelectV2"
    new, old = (view.producer(value) for value in select.inputs[1:])
    assert new.type == "Sub"
    assert old.type == "ReadVariableOp"
    assert old.inputs == write.inputs[:1]
    assert view.shape(select.inputs[1]) == (8, 4)


def test_what_waited_for_the_branch_waits_for_its_writes(emulated: Strategies) -> None:
    def step(given: Given) -> None:
        applied(given)
        given.sums.assign(given.weight)

    view = converted(emulated(2), step).view
    select = next(op for op in view if op.type == "SelectV2")
    ((write, _),) = view.consumers(Value(select.name))
    before, after = (op for op, _ in view.consumers(write.inputs[0]) if op.type == "ReadVariableOp")
    assert view.first_unordered([before], write) is None
    assert view.first_unordered([write], after) is None


def test_what_came_after_a_branch_that_only_looks_comes_after_its_look(
    emulated: Strategies,
) -> None:
    def step(given: Given) -> None:
        looked = tf.cond(given.same > 0, lambda: given.weight * given.total, lambda: given.total)
        # The value would not hold it back.
        given.weight.assign_sub(given.total)
        given.sums.assign(looked)

    view = converted(emulated(2), step).view
    (write,) = (op for op in view if op.type == "AssignSubVariableOp")
    looks = [op for op, _ in view.consumers(write.inputs[0]) if "wu_shard_read" in op.name]
    assert looks and view.first_unordered(looks, write) is None


def test_an_effect_that_waits_for_what_a_branch_returns_waits_for_its_writes(
    emulated: Strategies,
) -> None:
    def step(given: Given) -> None:
        def update() -> tf.Tensor:
            given.weight.assign_sub(given.total)
            return given.same

        result = tf.cond(given.same > 0, update, lambda: given.same)
        with tf.control_dependencies([result]):
            tf.print(given.same)

    view = converted(emulated(2), step).view
    (write,) = (op for op in view if op.type == "AssignVariableOp")
    (printed,) = (op for op in view if op.type == "PrintV2")
    assert view.first_unordered([write], printed) is None


def test_a_gradient_has_the_shape_of_what_the_branch_updates(emulated: Strategies) -> None:
    def step(given: Given) -> None:
        own = of_open_shape(given.own, given)
        given.total = tf.distribute.get_replica_context().all_reduce("SUM", own)
        applied(given)

    found = converted(emulated(2), step)
    assert branches(found) == [], found.kept_branches


def test_branches_of_open_or_different_shapes_stay_and_say_why(emulated: Strategies) -> None:
    def step(given: Given) -> None:
        used = tf.cond(given.same > 0, lambda: given.total, lambda: given.total[:1] * 2.0)
        given.weight.assign_sub(tf.reduce_sum(used) * given.weight)
        applied(given)
        given.total = of_open_shape(given.total, given)
        update = lambda: given.weight.assign_sub(tf.reshape(given.total * 2.0, (8, 4)))  # noqa: E731
        tf.cond(given.same > 0, update, lambda: given.same)

    found = converted(emulated(2), step)
    assert list(found.kept_branches.values()) == [
        refusals.Branches.BRANCH_YIELDS_DIFFERENT_SHAPES.at(),
        refusals.Branches.BRANCH_SHAPE_UNKNOWN.at(op_type="Mul"),
    ]
    assert branches(found) == list(found.kept_branches)


@pytest.mark.parametrize("step", [local, of_its_norm])
def test_other_branches_stay(emulated: Strategies, step: Step) -> None:
    graph, captured, program = traced(emulated(2), step)
    assert if_converted(TracedGraph(graph), captured, program, sums) is captured


def test_what_must_not_run_in_vain_stays_and_says_why(emulated: Strategies) -> None:
    def step(given: Given) -> None:
        update = lambda: given.weight.assign_sub(tf.cumsum(given.total))  # noqa: E731
        tf.cond(given.same > 0, update, lambda: given.same)

    found = converted(emulated(2), step)
    (name,) = branches(found)
    refused = RefusedUpdate("w", (), refusals.Updates.KEPT_APART.at(name))
    analysis = Analysis("", 2, (), (), (refused,), ())
    (told,) = analysis.with_reasons(found.kept_branches).refused
    assert told.refusal.reason == (
        "it mixes gradients whose updates are kept apart; its branches are not written out, as"
        " Cumsum is not to run where its branch is not taken"
    )


def test_a_check_of_the_gradient_stays_and_says_why(emulated: Strategies) -> None:
    def step(given: Given) -> None:
        tf.debugging.Assert(tf.reduce_max(given.total) < 100.0, [given.total])
        applied(given)

    found = converted(emulated(2), step)
    (name,) = branches(found)
    assert found.kept_branches[name] == refusals.Branches.BRANCH_NOT_IN_VAIN.at(op_type="Assert")


def test_a_variable_that_is_handed_on_by_its_handle_stays(emulated: Strategies) -> None:
    def step(given: Given) -> None:
        def update() -> tf.Tensor:
            one = given.weight.handle
            tf.raw_ops.ResourceApplyAdagrad(var=one, accum=one, lr=0.1, grad=given.total)
            return given.same

        tf.cond(given.same > 0, update, lambda: given.same)

    found = converted(emulated(2), step)
    (name,) = branches(found)
    assert found.kept_branches[name].kind is refusals.Branches.BRANCH_NEEDS_HANDLE


def test_the_graph_that_was_traced_stays_as_it_was(emulated: Strategies) -> None:
    graph, captured, program = traced(emulated(2), applied)
    before = captured.view.fingerprint
    if_converted(TracedGraph(graph), captured, program, sums)
    assert captured.view.fingerprint == before
    (name,) = branches(captured)
    called = captured.view.ops[name].node.attr["then_branch"].func.name
    inner = TracedGraph(graph).inner(called, {})
    assert inner is not None
    assert any(node.op == "AssignSubVariableOp" for node in inner.body().nodes)

"""What may run in vain is taken out of a branch, with all of an update; the rest stays there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.program.branching import Given, Step, Strategies, branches, converted, of_open_shape
from tf_wu_shard import refusals
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.program.branch_parts import rest_of
from tf_wu_shard.step.capture import Captured


def with_branch(update: Callable[[Given], Any]) -> Step:
    """A step in which a branch does something or nothing."""

    def step(given: Given) -> None:
        def taken() -> tf.Tensor:
            update(given)
            return given.same * 2.0

        given.weight.assign_add(tf.fill((8, 4), tf.cond(given.same > 0, taken, lambda: given.same)))

    return step


def beside(given: Given) -> None:
    given.weight.assign_sub(given.total * 0.1)
    given.sums.assign(tf.cumsum(given.total * 0.1))


def through_a_norm(given: Given) -> None:
    given.weight.assign_sub(given.total * tf.norm(given.total))
    given.sums.assign(tf.cumsum(given.own * tf.norm(given.total)))


def before_it_is_changed(given: Given) -> None:
    weight = given.weight.read_value()
    given.weight.assign(given.total + tf.reduce_sum(given.sums))
    given.sums.assign(tf.cumsum(tf.fill((8, 4), tf.reduce_sum(weight))))


def of_one_update(given: Given) -> None:
    given.sums.assign(given.sums * 0.9 + given.total)
    given.weight.assign_sub(tf.cumsum(given.sums))


def after_a_check(given: Given) -> None:
    with tf.control_dependencies([tf.debugging.check_numerics(given.total, "")]):
        given.weight.assign_sub(given.total)


def after_what_stays(given: Given) -> None:
    given.sums.assign(tf.cumsum(given.total))
    given.weight.assign_sub(given.total * tf.reduce_sum(given.sums))


def of_an_open_shape(given: Given) -> None:
    given.weight.assign_sub(given.total)
    given.sums.assign(tf.reshape(of_open_shape(given.own, given) * 2.0, (8, 4)))


def by_another_handle(given: Given) -> None:
    handle = tf.identity(given.sums.handle)
    held = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
    given.weight.assign_sub(given.total * tf.reduce_sum(held))
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.cumsum(given.total))


def split(found: Captured) -> tuple[Op, list[Op]]:
    """The branch op that stayed, and the selections of what was taken out of it."""
    (name,) = branches(found)
    assert [*found.kept_branches] == [name]
    selects = [op for op in found.view if op.type == "SelectV2"]
    assert name == rest_of(name.removesuffix(rest_of(""))) and selects
    return found.view.ops[name], selects


@pytest.mark.parametrize(
    ("update", "stays"),
    [
        (beside, refusals.Branches.BRANCH_NOT_IN_VAIN.at(op_type="Cumsum")),
        (through_a_norm, refusals.Branches.BRANCH_NOT_IN_VAIN.at(op_type="Cumsum")),
        (before_it_is_changed, refusals.Branches.BRANCH_NOT_IN_VAIN.at(op_type="Cumsum")),
        (of_an_open_shape, refusals.Branches.BRANCH_SHAPE_UNKNOWN.at(op_type="Reshape")),
    ],
)
def test_an_update_that_may_run_in_vain_is_taken_out(
    emulated: Strategies, update: Callable[[Given], Any], stays: Any
) -> None:
    found = converted(emulated(2), with_branch(update))
    rest, selects = split(found)
    assert found.kept_branches[rest.name] == stays
    (select,) = selects
    ((write, _),) = found.view.consumers(Value(select.name))
    # The rest holds the other variable, and what it reads of this one was read before.
    held = [value.op for value in rest.inputs if value.op in found.view.variables]
    assert len(held) == 1 and held != [write.inputs[0].op]
    before = [op for op, _ in found.view.consumers(Value(held[0])) if op.type == "ReadVariableOp"]
    assert not before or found.view.first_unordered(before, rest) is None
    # What the branch returns is still used, and the later write of the weight comes after both.
    (later,) = (op for op in found.view if op.type == "AssignAddVariableOp")
    assert found.view.first_unordered([write, rest], later) is None


def followed_by_a_check(given: Given) -> None:
    written = given.weight.assign_sub(given.total, read_value=False)
    with tf.control_dependencies([written]):
        tf.debugging.Assert(given.same > 0, [given.same])


def test_an_effect_that_waits_for_an_update_still_does(emulated: Strategies) -> None:
    found = converted(emulated(2), with_branch(followed_by_a_check))
    rest, (select,) = split(found)
    ((write, _),) = found.view.consumers(Value(select.name))
    assert found.view.first_unordered([write], rest) is None


@pytest.mark.parametrize(
    "update", [of_one_update, after_a_check, after_what_stays, by_another_handle]
)
def test_nothing_is_taken_out_of_what_belongs_together(
    emulated: Strategies, update: Callable[[Given], Any]
) -> None:
    found = converted(emulated(2), with_branch(update))
    assert branches(found) == [*found.kept_branches]
    assert not any(op.type == "SelectV2" for op in found.view)

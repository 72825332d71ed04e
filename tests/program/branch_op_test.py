"""A branch op's arguments that are no variables, and the functions that its branches call."""

from __future__ import annotations

import tensorflow as tf

from tests.program.branching import Given, Strategies, branches, traced
from tf_wu_shard.graph.calls import callee_names
from tf_wu_shard.program.branch_op import called_by, values_of


def calling(given: Given) -> None:
    @tf.function
    def halved(value: tf.Tensor) -> tf.Tensor:
        return value * 0.5

    def taken() -> None:
        given.weight.assign_sub(halved(given.total))

    tf.cond(given.same > 0, taken, lambda: None)


def test_what_is_no_variable_and_not_used_otherwise_is_a_value(emulated: Strategies) -> None:
    _, captured, _ = traced(emulated(2), calling)
    view = captured.view
    (name,) = branches(captured)
    op = view.ops[name]
    known = {n for n, value in enumerate(op.inputs[1:]) if value.op not in view.variables}
    assert known and {*values_of(op.node, set(), view)} == known
    first = min(known)
    assert first not in values_of(op.node, {first + 1}, view)


def test_a_function_that_a_branch_calls_is_found_and_the_branches_are_not(
    emulated: Strategies,
) -> None:
    _, captured, _ = traced(emulated(2), calling)
    (name,) = branches(captured)
    op = captured.view.ops[name]
    (called,) = called_by(captured.view, op)
    assert "halved" in called and called not in callee_names(op.node)

"""Of one branch, what is tied to an op that stays does so, and what may go is told apart."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.program.branching import Given, Step, Strategies, branches, traced
from tf_wu_shard.graph.calls import callee_names
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.branch_body import BranchBody
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.fused_values import stand_in
from tf_wu_shard.program.specialise import Specialiser


def two_updates(given: Given) -> None:
    def taken() -> None:
        given.weight.assign_sub(given.total)
        given.sums.assign(tf.cumsum(given.total))

    tf.cond(given.same > 0, taken, lambda: None)


def first_branch(
    emulated: Strategies, step: Step, of_lists: bool = False
) -> tuple[BranchBody, dict[int, VariableRef]]:
    """The branch of a step that is taken if its condition holds, and its variables by number."""
    graph, captured, _ = traced(emulated(2), step)
    (name,) = branches(captured)
    op = captured.view.ops[name]
    called = TracedGraph(graph).inner(callee_names(op.node)[0], {})
    assert called is not None
    handles = enumerate(op.inputs[1:])
    refs = {n: captured.view.variables[v.op] for n, v in handles if v.op in captured.view.variables}
    specialiser = Specialiser(TracedGraph(graph), captured, stand_in)
    return BranchBody(called, called.body(), refs, (), specialiser, of_lists), refs


def test_an_op_that_stays_keeps_the_variable_that_it_changes(emulated: Strategies) -> None:
    branch, refs = first_branch(emulated, two_updates)
    assert branch.written == refs.keys() and len(refs) == 2
    kept: set[str] = set()
    assert branch.mark(kept) and not branch.mark(kept)
    (going,) = (number for number, ref in refs.items() if ref.key not in kept)
    branch.take_out({going})
    types = [{branch.by_name[name].op for name in names} for names in (branch.apart, branch.rest)]
    assert "AssignSubVariableOp" in types[0] and types[0].isdisjoint({"Cumsum", "AssignVariableOp"})
    assert {"Cumsum", "AssignVariableOp"} <= types[1]
    # Both compute with the argument that is the gradient; neither hands the other anything.
    assert branch.handed == () and not branch.hands_a_handle and not branch.observes


@pytest.mark.parametrize("of_lists", [True, False])
def test_rows_may_go_where_the_branch_can_be_handed_none(
    emulated: Strategies, of_lists: bool
) -> None:
    def rows_and_all(given: Given) -> None:
        def taken() -> None:
            given.weight.assign_sub(given.total)
            rows = tf.cast(given.total[:, 0], tf.int32)
            handle = given.sums.handle
            tf.raw_ops.ResourceScatterAdd(resource=handle, indices=rows, updates=given.total)

        tf.cond(given.same > 0, taken, lambda: None)

    def by_lists(given: Given) -> None:
        rows = tf.cast(given.total[:, 0], tf.int32)
        shrunk = given.own * 0.5

        def taken() -> None:
            given.weight.assign_sub(given.total)
            handle = given.sums.handle
            tf.raw_ops.ResourceScatterAdd(resource=handle, indices=rows, updates=shrunk * 2.0)

        tf.cond(given.same > 0, taken, lambda: None)

    for step, all_go in ((by_lists, of_lists), (rows_and_all, False)):
        branch, refs = first_branch(emulated, step, of_lists)
        kept: set[str] = set()
        branch.mark(kept)
        assert len(kept) == (0 if all_go else 1)
        assert branch.written == refs.keys() and len(refs) == 2

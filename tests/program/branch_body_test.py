"""Of one branch, what is tied to an op that stays does so, and what may go is told apart."""

from __future__ import annotations

import tensorflow as tf

from tests.program.branching import Given, Strategies, branches, traced
from tf_wu_shard.graph.calls import callee_names
from tf_wu_shard.program.branch_body import BranchBody
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.fused_values import stand_in
from tf_wu_shard.program.specialise import Specialiser


def two_updates(given: Given) -> None:
    def taken() -> None:
        given.weight.assign_sub(given.total)
        given.sums.assign(tf.cumsum(given.total))

    tf.cond(given.same > 0, taken, lambda: None)


def test_an_op_that_stays_keeps_the_variable_that_it_changes(emulated: Strategies) -> None:
    graph, captured, _ = traced(emulated(2), two_updates)
    (name,) = branches(captured)
    op = captured.view.ops[name]
    called = TracedGraph(graph).inner(callee_names(op.node)[0], {})
    assert called is not None
    handles = enumerate(op.inputs[1:])
    refs = {n: captured.view.variables[v.op] for n, v in handles if v.op in captured.view.variables}
    specialiser = Specialiser(TracedGraph(graph), captured, stand_in)
    branch = BranchBody(called, called.body(), refs, (), specialiser)
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

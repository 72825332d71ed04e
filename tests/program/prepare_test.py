"""What the replicas of a TPU program sum is what its gradients are summed by."""

from __future__ import annotations

import tensorflow as tf

from tests.graph.text_graph import view_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.dialect import CarriedReduction
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.prepare import prepared, sums
from tf_wu_shard.step.capture import capture


def test_every_sum_over_replicas_is_one_of_its_first_operand() -> None:
    view = view_of(
        "x = Placeholder() [4]\ngroups = Const() {value=1} [1]\n"
        "a = CrossReplicaSum(x, groups) [4]\nb = XlaAllReduce(x, groups) [4]\nc = Neg(a) [4]"
    )
    assert sums(view) == (CarriedReduction((Value("x"),), (Value("a"),), 1, ("a",)),)
    assert sums(view_of("x = Placeholder() [4]")) == ()


def test_a_function_that_calls_nothing_stays_as_it_is() -> None:
    variable = tf.Variable(tf.ones((4,)))
    graph = (
        tf.function(lambda: variable.assign_add(variable * 2.0), autograph=False)
        .get_concrete_function()
        .graph
    )
    captured = capture(graph)
    found = prepared(TracedGraph(graph), captured, "", 2)
    assert [op.name for op in found.view] == [op.name for op in captured.view]
    assert not found.functions

"""What an op may run is known by the FuncGraphs that were traced for it."""

from __future__ import annotations

import tensorflow as tf

from tf_wu_shard.step.called_graphs import called_graphs
from tf_wu_shard.step.capture import capture


def test_the_graphs_of_functions_that_an_op_runs_are_known_with_those_that_they_call() -> None:
    inner = tf.function(lambda x: x * 2)

    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x > 0, lambda: inner(x), lambda: -x)

    graph = outer.get_concrete_function(tf.constant(1.0)).graph
    called = called_graphs(graph, capture(graph))
    (branch,) = (o.name for o in graph.get_operations() if o.type in ("If", "StatelessIf"))
    kinds = [one.name.partition("_")[0] for one in called(branch)]
    assert sorted(kinds) == ["<lambda>", "cond", "cond"]
    assert called("x") == [] and called(branch) is called(branch)

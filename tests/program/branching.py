"""Steps of two variables whose updates stand in branches, traced on emulated TPU replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_wu_shard.graph.calls import BRANCHES
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.if_conversion import if_converted
from tf_wu_shard.program.prepare import sums
from tf_wu_shard.step.capture import Captured, capture

Strategies = Callable[[int], tf.distribute.TPUStrategy]
Step = Callable[["Given"], Any]


class Given:
    """What a step works with: a gradient, its sum, a number that all replicas share, variables."""

    def __init__(self, own: tf.Tensor, same: tf.Tensor, variables: list[tf.Variable]) -> None:
        self.own = own
        self.same = same
        self.weight, self.sums = variables
        self.total = tf.distribute.get_replica_context().all_reduce("SUM", own)


def traced(strategy: tf.distribute.TPUStrategy, step: Step) -> tuple[Any, Captured, str]:
    """A step's FuncGraph, its graph and variables, and the name of the program."""
    with strategy.scope():
        variables = [tf.Variable(tf.ones((8, 4))) for _ in range(2)]
    rows = strategy.experimental_distribute_values_from_function(lambda _: tf.ones((8, 4)))

    @tf.function
    def program(own: Any, same: tf.Tensor) -> None:
        strategy.run(lambda own: step(Given(own, same, variables)), (own,))

    graph = program.get_concrete_function(rows, tf.constant(0.5)).graph
    captured = capture(graph)
    assert captured.cluster is not None
    return graph, captured, captured.cluster.name


def converted(strategy: tf.distribute.TPUStrategy, step: Step) -> Captured:
    graph, captured, program = traced(strategy, step)
    return if_converted(TracedGraph(graph), captured, program, sums)


def branches(captured: Captured) -> list[str]:
    return [op.name for op in captured.view if op.type in BRANCHES]


def applied(given: Given) -> None:
    tf.cond(given.same > 0, lambda: given.weight.assign_sub(given.total * 0.1), lambda: given.same)


def accumulated(given: Given) -> None:
    given.sums.assign_add(given.total)
    tf.cond(given.same > 0, lambda: given.weight.assign_sub(given.sums), lambda: given.same)


def of_open_shape(value: tf.Tensor, given: Given) -> tf.Tensor:
    """The same value, its shape not known when it is traced."""
    return tf.reshape(value, tf.cast([given.same * 16, given.same * 8], tf.int32))

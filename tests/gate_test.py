"""The gate lets through what may train variables of several replicas, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard import refusals
from tf_wu_shard.gate import against_training, look
from tf_wu_shard.tensorflow_private import function_graph


def traced(step: Callable[[], Any]) -> Any:
    return tf.function(step, autograph=False).get_concrete_function().graph


@pytest.fixture
def strategy(strategy_of: Callable[[int], tf.distribute.Strategy]) -> tf.distribute.Strategy:
    return strategy_of(2)


def writing(strategy: tf.distribute.Strategy, variable: Any) -> Callable[[], Any]:
    def step() -> None:
        strategy.extended.update(variable, lambda one: one.assign_sub(tf.ones((4,))))

    return step


def test_a_write_of_a_mirrored_variable_is_let_through_where_a_pass_is_asked_for(
    strategy: tf.distribute.Strategy,
) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.ones((4,)))
    graph = traced(writing(strategy, variable))
    sight = look(graph, True)
    assert sight.is_let_through and sight.asked and len(sight.handles) == 2
    assert not look(graph, False).is_let_through and not look(graph, False).asked


def test_a_write_of_a_part_of_it_is_one_too(strategy: tf.distribute.Strategy) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.ones((4,)))
    graph = traced(lambda: variable.values[0][1:3].assign(tf.zeros((2,))))
    assert look(graph, True).is_let_through


@pytest.mark.parametrize("depth", [1, 2])
def test_so_is_a_call_that_is_handed_a_variable_to_write(
    strategy: tf.distribute.Strategy, depth: int
) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.ones((4,)))

    def called(function: Callable[..., Any]) -> Any:
        for _ in range(depth):
            function = tf.function(function)
        return traced(lambda: strategy.extended.update(variable, function))

    assert look(called(lambda one: one.assign_sub(tf.ones((4,)))), True).calls
    assert not look(called(lambda one: one * 2.0), True).is_let_through


def test_each_function_that_is_handed_variables_is_looked_at_once(
    strategy: tf.distribute.Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.ones((4,)))

    def twice(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        called = tf.function(function)
        return lambda one: called(one) + called(one)

    def reading(one: Any) -> Any:
        return one * 2.0

    function: Callable[[Any], Any] = reading
    for _ in range(8):
        function = twice(function)
    graph = traced(lambda: strategy.extended.update(variable, tf.function(function)))
    looked_at: list[Any] = []
    handed_handles = function_graph.handed_handles

    def noted(inner: Any) -> list[Any]:
        looked_at.append(inner)
        return handed_handles(inner)

    monkeypatch.setattr(function_graph, "handed_handles", noted)
    assert not look(graph, True).is_let_through
    assert len(looked_at) == len({*looked_at}) >= 8


def test_a_function_that_only_reads_is_not(strategy: tf.distribute.Strategy) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.ones((4,)))
    assert not look(traced(lambda: strategy.run(lambda: variable * 2.0)), True).is_let_through


def test_a_write_of_a_variable_of_one_device_is_not_whatever_else_is_read(
    strategy: tf.distribute.Strategy,
) -> None:
    with strategy.scope():
        variable = tf.Variable(tf.ones((4,)))
    counter = tf.Variable(0.0)
    graph = traced(lambda: counter.assign_add(tf.reduce_sum(variable.values[0])))
    assert not look(graph, True).is_let_through


class Step:
    """A weight and its average on one device."""

    def __init__(self) -> None:
        self.weight = tf.Variable(tf.ones((4, 4)))
        self.average = tf.Variable(tf.zeros((4, 4)))

    def trains(self) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(self.weight, self.weight))
        self.weight.assign_sub(tape.gradient(loss, self.weight))

    def averages(self) -> None:
        self.average.assign(0.9 * self.average + 0.1 * self.weight)

    def resets(self) -> None:
        self.weight.assign(tf.zeros((4, 4)))

    def reads(self) -> Any:
        return tf.matmul(self.weight, self.weight)


def test_training_variables_that_each_replica_has_for_itself_is_told(
    strategy: tf.distribute.Strategy,
) -> None:
    """As Sonnet's Replicator makes them."""
    with strategy.scope():
        own = tf.Variable(tf.ones((4, 4)), synchronization=tf.VariableSynchronization.ON_READ)
    for component in own.values:
        # TensorFlow makes none that says so itself.
        component._trainable = True

    def replica() -> None:
        gradient = tf.matmul(own, own)
        own.assign_sub(tf.distribute.get_replica_context().all_reduce("sum", gradient))

    graph = traced(lambda: strategy.run(replica))
    sight = look(graph, True)
    assert not sight.is_let_through
    found = against_training(graph, sight.handles)
    assert found is not None and found.kind is refusals.Topology.VARIABLES_OF_EACH_REPLICA


def test_training_on_one_replica_is_told() -> None:
    step = Step()
    graph = traced(step.trains)
    found = against_training(graph, look(graph, True).handles)
    assert found is not None and found.kind is refusals.Topology.ONE_REPLICA


@pytest.mark.parametrize("name", ["averages", "resets", "reads"])
def test_what_averages_resets_or_reads_trains_nothing(name: str) -> None:
    step = Step()
    graph = traced(getattr(step, name))
    assert against_training(graph, look(graph, True).handles) is None


def test_a_branch_speaks_through_the_function_around_it() -> None:
    branches: list[Any] = []
    one = Step()

    def step() -> None:
        def branch() -> tf.Tensor:
            branches.append(tf.compat.v1.get_default_graph())
            one.trains()
            return tf.constant(0)

        tf.cond(tf.reduce_sum(one.weight) > 0.0, branch, lambda: tf.constant(1))

    traced(step)
    handles = look(branches[0], True).handles
    assert handles and against_training(branches[0], handles) is None

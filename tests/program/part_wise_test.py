"""Branches are known to work on variables part by part where they do so, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import weight_and_slot
from tf_wu_shard.program.called_graph import TracedGraph
from tf_wu_shard.program.part_wise import part_wise, with_part_wise
from tf_wu_shard.step.capture import capture

Strategies = Callable[[int], tf.distribute.MirroredStrategy]
Variables = tuple[tf.Variable, tf.Variable]

TOGETHER = frozenset({"weight", "momentum"})


@pytest.fixture
def pair(strategy_of: Strategies) -> Variables:
    """A weight and an average of it, (5, 7) each, on two replicas."""
    return weight_and_slot(strategy_of(2))


def found_in(
    pair: Variables, taken: Callable[[tf.Variable, tf.Variable], Any]
) -> list[dict[str, frozenset[str]]]:
    """What is found of a branch that may do something to a replica's weight and average."""
    weight, average = (variable.values[0] for variable in pair)

    def step(is_due: tf.Tensor) -> None:
        def due() -> tf.Tensor:
            taken(weight, average)
            return tf.constant(0)

        tf.cond(is_due, due, lambda: tf.constant(0))

    function = tf.function(step, autograph=False, input_signature=[tf.TensorSpec((), tf.bool)])
    graph = function.get_concrete_function().graph
    captured = capture(graph)
    found = part_wise(TracedGraph(graph), captured, "", 2)
    known = with_part_wise(TracedGraph(graph), captured, "", 2)
    assert known.view.part_wise == found
    assert (known is captured) == (not found)
    return [*found.values()]


def test_variables_that_meet_in_an_element_are_cut_alike(pair: Variables) -> None:
    (keys,) = found_in(pair, lambda weight, average: weight.assign(average * 0.5 + weight))
    assert keys == {"weight": TOGETHER, "momentum": TOGETHER}


def test_those_that_do_not_meet_may_be_cut_apart(pair: Variables) -> None:
    def scaled(weight: tf.Variable, average: tf.Variable) -> None:
        weight.assign(weight * 2.0)
        average.assign(average * 3.0)

    (keys,) = found_in(pair, scaled)
    assert keys == {"weight": {"weight"}, "momentum": {"momentum"}}


@pytest.mark.parametrize(
    "taken",
    [
        lambda weight, average: weight.assign(average / tf.norm(average)),
        lambda weight, average: weight.assign(tf.reverse(average, [0])),
        lambda weight, average: weight.assign(average + tf.ones((5, 1))),
        lambda weight, average: weight.assign(tf.random.normal((5, 7)) * average),
    ],
    ids=("a norm", "another order", "a column", "random numbers"),
)
def test_what_needs_the_whole_is_not_done_by_parts(
    pair: Variables, taken: Callable[[tf.Variable, tf.Variable], Any]
) -> None:
    assert found_in(pair, taken) == []


def test_a_branch_on_which_replicas_may_differ_is_none(pair: Variables) -> None:
    weight = pair[0].values[0]

    def step(rows: tf.Tensor) -> None:
        def due() -> tf.Tensor:
            weight.assign(weight * 0.5)
            return tf.constant(0)

        tf.cond(rows[0] > 0.0, due, lambda: tf.constant(0))

    function = tf.function(step, autograph=False, input_signature=[tf.TensorSpec((4,))])
    graph: Any = function.get_concrete_function().graph
    captured = capture(graph)
    assert len(part_wise(TracedGraph(graph), captured, "", 2)) == 1
    own = captured.with_view(captured.view.with_inputs([graph.inputs[0].op.name], {}))
    assert part_wise(TracedGraph(graph), own, "", 2) == {}

"""Traces that make variables, and those that are over once the variables have their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.equivalence.in_process import turn_off, turn_on
from tf_wu_shard.tensorflow_private import creating_traces, traced_graphs

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def counting(strategy: tf.distribute.Strategy, graphs: list[Any]) -> Any:
    """A function that makes a mirrored variable when it is first traced, and adds 1 to it.

    The variable's second component starts from what the first holds. TensorFlow cannot take that
    out of the trace, and runs the trace.

    Args:
        strategy: Whose variable it is.
        graphs: Where to note the FuncGraphs of the traces.
    """
    made: list[tf.Variable] = []

    @tf.function(autograph=False)
    def count() -> tf.Tensor:
        graphs.append(tf.compat.v1.get_default_graph())
        with strategy.scope():
            if not made:
                made.append(tf.Variable(1.0))
            for component in made[0].values:
                component.assign_add(1.0)
            return made[0].values[-1].read_value()

    return count


@pytest.mark.parametrize(("flag", "traces"), [(False, 2), (True, 3)])
def test_what_was_traced_before_there_were_values_is_traced_again_where_the_flag_is_on(
    strategy_of: Strategies, flag: bool, traces: int
) -> None:

    graphs: list[Any] = []
    count = counting(strategy_of(2), graphs)
    if flag:
        turn_on()
    try:
        assert [float(count()) for _ in range(3)] == [2.0, 3.0, 4.0]
    finally:
        turn_off()
    assert len(graphs) == traces
    assert [creating_traces.makes_variables(graph) for graph in graphs] == [True, False, False][
        :traces
    ]


def test_only_traces_that_are_not_run_any_more_are_over(strategy_of: Strategies) -> None:
    graphs: list[Any] = []
    count = counting(strategy_of(2), graphs)
    turn_on()
    try:
        count()
        count()
    finally:
        turn_off()
    assert [creating_traces.is_over(graph) for graph in graphs] == [True, True, False]


def test_a_trace_that_makes_variables_is_not_over_while_it_is_made(
    strategy_of: Strategies,
) -> None:
    strategy = strategy_of(2)
    made: list[tf.Variable] = []
    over: list[bool] = []

    @tf.function(autograph=False)
    def step() -> None:
        with strategy.scope():
            if not made:
                made.append(tf.Variable(1.0))
                over.append(creating_traces.is_over(tf.compat.v1.get_default_graph()))

    step()
    assert over == [False]


@pytest.mark.parametrize("left", [False, True])
def test_a_trace_that_is_left_to_its_caller_serves_no_later_call(left: bool) -> None:
    traces = []

    @tf.function
    def called() -> tf.Tensor:
        traces.append(tf.compat.v1.get_default_graph())
        if left:
            traced_graphs.leave_to_caller(traces[-1])
        return tf.constant(1.0)

    assert float(tf.function(lambda: called() + called())()) == 2.0
    assert float(called()) == 1.0
    assert len(traces) == (3 if left else 1)
    assert [traced_graphs.is_left_to_caller(graph) for graph in traces] == [left] * len(traces)

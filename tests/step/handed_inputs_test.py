"""What a nested function captured is a replica's own where the function around it made it so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.step.handed_inputs import own_inputs
from tf_wu_shard.step.origins import Origin
from tf_wu_shard.tensorflow_private import function_graph


def answers(step: Callable[..., Any], *, of_arguments: bool) -> Mapping[str, bool]:
    """What is said of the inputs of the function called `inner` that `step` traces, by their names.

    Args:
        step: Gets what to call in its trace with a function; that one's graph is asked about.
        of_arguments: See `own_inputs`.
    """
    found: dict[str, bool] = {}

    def traced(body: Callable[[], Any]) -> None:
        inner = tf.function(body, autograph=False).get_concrete_function().graph
        handed = own_inputs(inner, of_arguments=of_arguments)
        captured = function_graph.captured_values(inner)
        inputs = handed(dict.fromkeys([*captured, "argument"], 1), 1)
        own = {name for name, one in inputs.items() if one.origin is Origin.OWN}
        found.update({outside: name in own for name, (_, outside, _) in captured.items()})
        found["no input that was captured"] = "argument" in own

    tf.function(lambda x: step(x, traced), autograph=False).get_concrete_function(
        tf.TensorSpec((4,), name="x")
    )
    return found


def step(x: tf.Tensor, traced: Callable[[Callable[[], Any]], None]) -> tf.Tensor:
    drawn = tf.random.uniform((4,), name="drawn") * 2.0
    known = tf.ones((4,), name="known")
    made = tf.add(x, 1.0, name="made")
    size = tf.shape(x, name="size")
    traced(lambda: (drawn + known + made, size))
    return x


@pytest.mark.parametrize("of_arguments", [True, False])
def test_a_captured_value_is_followed_in_the_function_around(*, of_arguments: bool) -> None:
    found = answers(step, of_arguments=of_arguments)
    # The outer function is nested in none: what it is handed is a replica's own if arguments are.
    assert dict(found) == {
        "mul": True,
        "made": of_arguments,
        "size": False,
        "known": False,
        "no input that was captured": of_arguments,
    }


@pytest.mark.parametrize("of_arguments", [True, False])
def test_of_a_function_in_no_other_nothing_is_captured_in_a_trace(*, of_arguments: bool) -> None:
    graph = tf.function(lambda: tf.ones(())).get_concrete_function().graph
    handed = own_inputs(graph, of_arguments=of_arguments)({"x": 1, "y": 2}, 2)
    whose = Origin.OWN if of_arguments else Origin.ANSWERED_FOR
    assert {one.origin for one in handed.values()} == {whose}
    # The copies may be handed the same.
    assert (handed["x"] == handed["y"]) is not of_arguments


def test_a_value_from_further_out_is_followed_all_the_way() -> None:
    def outer(x: tf.Tensor, traced: Callable[[Callable[[], Any]], None]) -> tf.Tensor:
        drawn = tf.random.uniform((4,), name="drawn")

        def between() -> tf.Tensor:
            traced(lambda: drawn * 2.0)
            return drawn + 1.0

        return tf.function(between, autograph=False)() + x

    found = answers(outer, of_arguments=False)
    assert [own for name, own in found.items() if name != "no input that was captured"] == [True]

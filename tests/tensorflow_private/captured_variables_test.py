"""What is known of the variables that a function captures, in the order of its captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_wu_shard.tensorflow_private.captured_variables import captured_variables


def traced(step: Callable[[], Any]) -> Any:
    return tf.function(step, autograph=False).get_concrete_function().graph


def test_a_plain_variable_has_its_name_shape_and_type() -> None:
    one = tf.Variable(tf.ones((2, 3)), name="one")
    other = tf.Variable(tf.zeros((4,), tf.int64), name="other")
    first, second = captured_variables(traced(lambda: (one.read_value(), other.read_value())))
    assert (first.name, first.shape, first.dtype) == ("one", (2, 3), tf.float32.as_datatype_enum)
    assert (second.name, second.shape, second.dtype) == ("other", (4,), tf.int64.as_datatype_enum)
    assert first.variable is None and first.num_replicas == 1 and not first.stands_for_all


def test_a_variable_of_open_shape_has_none() -> None:
    open_ = tf.Variable(tf.ones((2, 3)), shape=tf.TensorShape([None, 3]))
    (found,) = captured_variables(traced(lambda: open_.read_value()))
    assert found.shape is None


def test_components_of_a_mirrored_variable_are_numbered(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    with strategy_of(2).scope():
        variable = tf.Variable(tf.ones((2,)), name="mirrored")
    second, first = captured_variables(
        traced(lambda: [c.read_value() for c in reversed(variable.values)])
    )
    assert (first.replica, second.replica, first.num_replicas) == (0, 1, 2)
    assert first.variable is second.variable is variable and first.mirrored
    assert first.device != second.device and first.replicas_elsewhere == 0


def test_a_function_without_variables_has_none() -> None:
    constant = tf.constant([1.0])
    assert captured_variables(traced(lambda: constant * 2.0)) == []


def test_a_random_generator_may_be_used_inside_of_the_strategys_scope(
    strategy_of: Callable[[int], tf.distribute.Strategy],
) -> None:
    plain = tf.Variable(1.0, name="plain")
    strategy = strategy_of(2)

    def draw() -> Any:
        return strategy.run(lambda: generator.normal((2,)) * plain)

    with strategy.scope():
        generator = tf.random.Generator.from_seed(1)
        found = captured_variables(traced(draw))
    assert "plain" in {one.name for one in found}

"""Numbers that Python counts at each call are told from other inputs; keys are put beside them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.tensorflow_private.call_time_inputs import another_key, call_time_inputs
from tf_wu_shard.tensorflow_private.instance_keys import InstanceKeys

SCALAR = tf.TensorSpec([], tf.int32)


class Counting:
    """What a strategy counts by; its numbers are all 7."""

    _group_key = 81
    _device = "/job:localhost/replica:0/task:0/device:CPU:0"

    def seven(self) -> tf.Tensor:
        return tf.constant(7)


COUNTING = Counting()


def counted() -> Any:
    """A function with an argument, a captured value and a number that is asked for."""
    outside = tf.constant([3])

    @tf.function(autograph=False, input_signature=[SCALAR])
    def step(x: tf.Tensor) -> tf.Tensor:
        graph = tf.compat.v1.get_default_graph()
        key = graph.capture_call_time_value(COUNTING.seven, SCALAR)
        return x + key + outside

    return step.get_concrete_function()


def test_only_what_is_asked_for_at_each_call_counts() -> None:
    function = counted()
    assert int(function(tf.constant(1))[0]) == 11
    (name,) = call_time_inputs(function.graph)
    argument = function.graph.inputs[0].op.name
    assert name != argument


def test_another_key_is_of_the_same_group_and_device_and_no_strategys() -> None:
    graph = counted().graph
    (name,) = call_time_inputs(graph)
    code, spec = another_key(graph.get_tensor_by_name(f"{name}:0"))
    first = int(code())
    assert first > 7 and spec == SCALAR
    assert int(InstanceKeys(COUNTING._group_key, COUNTING._device).following()) == first + 1


def test_a_loops_body_has_the_numbers_of_the_function_around_it() -> None:
    bodies: list[Any] = []

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        graph: Any = tf.compat.v1.get_default_graph()
        key = graph.capture_call_time_value(COUNTING.seven, SCALAR)

        def body(n: tf.Tensor) -> tf.Tensor:
            bodies.append(tf.compat.v1.get_default_graph())
            return n + key

        return tf.while_loop(lambda n: n < 100, body, [tf.constant(0)])[0]

    outer: Any = step.get_concrete_function().graph
    assert len(call_time_inputs(outer)) == 1
    (name,) = call_time_inputs(bodies[-1])
    assert bodies[-1].get_tensor_by_name(f"{name}:0").dtype == tf.int32

"""TensorFlow's rarer ways to write a step, on emulated replicas."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.emulation import replicas
from tests.emulation.replicas import context, number
from tf_wu_shard.tensorflow_private import xla_ops
from tf_wu_shard.tensorflow_private.function_definition import function_names

OWN = np.array([0, 1, 2, 3], np.float32)


def total(x: Any) -> Any:
    return context().all_reduce("sum", x)


def values(strategy: tf.distribute.Strategy, function: Any, *given: Any) -> list[Any]:
    return [result.tolist() for result in replicas.run(strategy, function, *given)]


def test_recomputed_gradients_exchange_again(four: tf.distribute.TPUStrategy) -> None:
    with four.scope():
        weight = tf.Variable(2.0)

    @tf.recompute_grad
    def recomputed(x: tf.Tensor) -> tf.Tensor:
        return total(x * x) * weight

    def function(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = recomputed(x)
        return total(tape.gradient(loss, weight))

    assert values(four, function, OWN) == [4 * 14] * 4


def test_a_custom_gradient_may_exchange(four: tf.distribute.TPUStrategy) -> None:
    @tf.custom_gradient
    def square(x: tf.Tensor) -> Any:
        return x * x, lambda upstream: total(3 * upstream)

    def function(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = square(x) * number()
        return tape.gradient(y, x)

    assert values(four, function, OWN) == [3 * 6] * 4


def test_second_derivatives_go_through_an_exchange(four: tf.distribute.TPUStrategy) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = total(x**3)
            first = inner.gradient(y, x)
        return outer.gradient(first, x)

    # Each replica's y counts in the gradients of all: 4 (x^3)'' = 24 x.
    assert values(four, function, OWN) == [0, 24, 48, 72]


def test_scans_and_maps_exchange_in_every_step(four: tf.distribute.TPUStrategy) -> None:
    def scanned(x: tf.Tensor) -> tf.Tensor:
        return tf.scan(lambda a, b: a + total(b + x), tf.range(3.0))

    def mapped(x: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(lambda b: total(b * x) + x, tf.range(3.0), parallel_iterations=4)

    assert values(four, scanned, OWN) == [[0, 10, 24]] * 4
    assert values(four, mapped, OWN) == [[r, 6 + r, 12 + r] for r in range(4)]


def test_the_gradient_of_a_scan_with_an_exchange(four: tf.distribute.TPUStrategy) -> None:
    def function(own: tf.Tensor) -> tf.Tensor:
        x = own + tf.range(3.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.scan(lambda a, b: a * b + total(b), x))
        return tape.gradient(y, x)

    # y = x0 + a1 + a2 with a1 = x0 x1 + S1, a2 = a1 x2 + S2; S1 = 10 is in all replicas' a1 and a2.
    assert values(four, function, OWN) == [
        [1 + x1 + x1 * x2, x0 * (1 + x2) + 18, x0 * x1 + 10 + 4]
        for x0, x1, x2 in ((r, r + 1, r + 2) for r in range(4))
    ]


def test_tensor_arrays_grow_in_each_replica(four: tf.distribute.TPUStrategy) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, clear_after_read=False)
        for i in tf.range(3):
            array = array.write(i, total(x) + x * tf.cast(i, tf.float32))
        return array.stack()

    assert values(four, function, OWN) == [[6, 6 + r, 6 + 2 * r] for r in range(4)]


def test_composite_and_string_inputs_reach_the_replicas(four: tf.distribute.TPUStrategy) -> None:
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    sparse = tf.sparse.from_dense([[0.0, 1.0], [2.0, 0.0]])

    def function(rows: Any, few: Any, text: tf.Tensor) -> tf.Tensor:
        length = tf.cast(tf.strings.length(text), tf.float32)
        return tf.reduce_sum(rows) + 10 * tf.sparse.reduce_sum(few) + 100 * length + number()

    @tf.function
    def step(*given: Any) -> Any:
        return four.run(function, given)

    found = replicas.each(four, step(ragged, sparse, tf.constant("abc")))
    assert found == [336, 337, 338, 339]


def test_python_runs_inside_of_replicas(four: tf.distribute.TPUStrategy) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        return total(tf.py_function(lambda y: y.numpy() * 2, [x], tf.float32))

    assert values(four, function, OWN) == [12] * 4


def test_an_assertion_of_one_replica_fails_the_step(four: tf.distribute.TPUStrategy) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(x, 3.0, message="too large")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        replicas.run(four, function, OWN)


def test_side_effects_of_functions_keep_their_order(four: tf.distribute.TPUStrategy) -> None:
    with four.scope():
        weight = tf.Variable(0.0)

    @tf.function
    def assign(x: tf.Tensor) -> None:
        weight.assign(total(x))

    @tf.function
    def grow() -> None:
        weight.assign_add(total(weight) / 4)

    def function(x: tf.Tensor) -> tf.Tensor:
        assign(x)
        grow()
        between = weight + 0
        grow()
        return between

    assert values(four, function, OWN) == [12] * 4
    assert [float(one) for one in weight.values] == [24] * 4


def test_functions_made_for_replicas_go_with_the_step(four: tf.distribute.TPUStrategy) -> None:
    def function(x: tf.Tensor) -> tf.Tensor:
        def drawn() -> tf.Tensor:
            # The exchange of a replica's context has a gradient that TensorFlow never lets go of.
            summed = xla_ops.cross_replica_sum(x, [[0, 1, 2, 3]])
            return summed + tf.function(lambda: tf.random.uniform([], seed=1))()

        return tf.cond(tf.size(x) > 0, drawn, lambda: x)

    def traced() -> set[str]:
        @tf.function
        def step(x: tf.Tensor) -> Any:
            return four.run(function, (x,))

        step(tf.ones([2]))
        return function_names()

    before = function_names()
    during = traced()
    gc.collect()
    assert [name for name in during - before if "all_replicas" in name]
    left = function_names() - before
    assert not [name for name in left if not name.startswith("__wrapped__")]


def test_steps_may_be_traced_and_run_in_several_threads(four: tf.distribute.TPUStrategy) -> None:
    found: dict[int, list[Any]] = {}

    def work(factor: int) -> None:
        @tf.function
        def inner(x: tf.Tensor) -> tf.Tensor:
            return total(x) * factor + x

        for _ in range(3):
            found[factor] = values(four, inner, OWN)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {factor: [6 * factor + r for r in range(4)] for factor in range(4)}

"""Variables of an emulated strategy: who writes which replica's copy, and who sees it when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.emulation import replicas
from tests.emulation.replicas import number

OWN = np.array([1, 2, 4, 8], np.float32)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("MEAN", [3.75] * 4), ("SUM", [15] * 4), ("ONLY_FIRST_REPLICA", [1] * 4), ("NONE", OWN)],
)
def test_mirrored_variables_combine_what_replicas_assign(
    four: tf.distribute.TPUStrategy, kind: str, expected: Any
) -> None:
    with four.scope():
        mirrored = tf.Variable(0.0, aggregation=tf.VariableAggregation[kind])
    replicas.run(four, lambda x: mirrored.assign(x), OWN)
    assert [float(one) for one in mirrored.values] == list(expected)


@pytest.mark.parametrize(("kind", "expected"), [("SUM", 15), ("MEAN", 3.75)])
def test_on_read_variables_are_each_replicas_own_until_read(
    four: tf.distribute.TPUStrategy, kind: str, expected: float
) -> None:
    with four.scope():
        metric = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation[kind],
        )
    replicas.run(four, lambda x: metric.assign_add(x), OWN)
    assert [float(one) for one in metric.values] == OWN.tolist()
    assert float(metric.read_value()) == expected

    @tf.function
    def read() -> tf.Tensor:
        return metric.read_value()

    assert float(read()) == expected


def test_a_step_may_make_its_variables_itself(four: tf.distribute.TPUStrategy) -> None:
    made: list[tf.Variable] = []

    def function(x: tf.Tensor) -> tf.Tensor:
        if not made:
            made.append(tf.Variable(3.0))
        return made[0].assign_add(x)

    assert replicas.run(four, function, OWN) == [4, 5, 7, 11]


def test_the_host_and_the_replicas_see_each_others_writes_in_order(
    four: tf.distribute.TPUStrategy,
) -> None:
    with four.scope():
        shared = tf.Variable(1.0)

    def slowly(x: tf.Tensor) -> tf.Tensor:
        # Whoever does not wait overtakes this.
        return x + 0 * tf.linalg.matmul(tf.ones([600, 600]), tf.ones([600, 600]))[0, 0]

    def doubled() -> None:
        shared.assign(slowly(shared * 2))

    def read() -> tf.Tensor:
        return shared + number()

    @tf.function
    def step() -> Any:
        shared.assign(slowly(shared + 1))
        four.run(doubled)
        seen = four.run(read)
        shared.assign_add(100)
        four.run(doubled)
        return seen, shared + 0

    seen, after = step()
    assert replicas.each(four, seen) == [4, 5, 6, 7]
    assert float(after) == 208


def writes_of_the_host(strategy: tf.distribute.TPUStrategy) -> dict[str, Any]:
    """Traced functions that double a variable on the host, which something then waits for."""

    def doubled(weight: tf.Variable) -> None:
        weight.assign(weight * 2)

    def read_afterwards(weight: tf.Variable) -> tf.Tensor:
        doubled(weight)
        return weight.read_value()

    def before_a_cluster(weight: tf.Variable) -> Any:
        doubled(weight)
        return strategy.run(lambda: weight * 1)

    def after_a_cluster(weight: tf.Variable) -> Any:
        result = strategy.run(lambda: weight * 1)
        doubled(weight)
        return result

    def in_a_branch(weight: tf.Variable) -> Any:
        tf.cond(tf.random.uniform([]) < 2, lambda: weight.assign(weight * 2), lambda: weight + 0)
        return strategy.run(lambda: weight * 1)

    def in_a_loop(weight: tf.Variable) -> None:
        for _ in tf.range(3):
            strategy.run(lambda: weight.assign(weight / 2))
            weight.assign(weight * 2)
        doubled(weight)

    def in_a_function(weight: tf.Variable) -> Any:
        tf.function(lambda: doubled(weight))()
        return strategy.run(lambda: weight * 1)

    functions = (read_afterwards, before_a_cluster, after_a_cluster, in_a_branch, in_a_loop)
    return {function.__name__: function for function in (doubled, *functions, in_a_function)}


@pytest.mark.parametrize(
    "name",
    [
        *("doubled", "read_afterwards", "before_a_cluster", "after_a_cluster", "in_a_branch"),
        *("in_a_loop", "in_a_function"),
    ],
)
def test_a_write_on_the_host_reaches_all_replicas(
    four: tf.distribute.TPUStrategy, name: str
) -> None:
    with four.scope():
        weight = tf.Variable(3.0)
    write = writes_of_the_host(four)[name]

    @tf.function
    def step() -> Any:
        return write(weight)

    step()
    assert [float(one) for one in weight.values] == [6] * 4

"""Functions, branches and loops of a TPU program, with and without an exchange inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.emulation import replicas
from tests.emulation.replicas import context, number
from tf_wu_shard.emulation import EmulationError
from tf_wu_shard.tensorflow_private import xla_ops

OWN = np.array([1, 2, 4, 8], np.float32)
DISAGREE = "the replicas disagree about .*, inside of which they exchange data"


def total(x: tf.Tensor) -> tf.Tensor:
    return context().all_reduce("sum", x)


def nested(function: Callable[..., Any], depth: int) -> Callable[..., Any]:
    """A function inside of so many traced functions."""
    for _ in range(depth):
        function = tf.function(function)
        # Each level is a graph of its own, with something of its own to do.
        function = _and_negate(_and_negate(function))
    return function


def _and_negate(function: Callable[..., Any]) -> Callable[..., Any]:
    def negated(*args: Any) -> Any:
        return -function(*args)

    return negated


def values(
    strategy: tf.distribute.Strategy, function: Callable[..., Any], *given: Any
) -> list[Any]:
    return [result.tolist() for result in replicas.run(strategy, function, *given)]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_functions_in_functions_exchange_as_if_written_in_one(
    four: tf.distribute.TPUStrategy, depth: int, compiled: bool
) -> None:
    @tf.function(jit_compile=compiled)
    def exchanged(x: tf.Tensor) -> tf.Tensor:
        return total(x) + 10 * number()

    assert values(four, nested(exchanged, depth), OWN) == [15, 25, 35, 45]


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_functions_without_an_exchange_run_for_each_replica(
    four: tf.distribute.TPUStrategy, depth: int, compiled: bool
) -> None:
    with four.scope():
        mirrored = tf.Variable(0.0)

    @tf.function(jit_compile=compiled)
    def grown(x: tf.Tensor) -> tf.Tensor:
        mirrored.assign_add(x)
        return mirrored + tf.cast(xla_ops.xla_replica_id(), tf.float32)

    assert values(four, nested(grown, depth), OWN) == [1, 3, 6, 11]
    assert [float(one) for one in mirrored.values] == [1, 2, 4, 8]


def test_one_function_is_called_at_several_places(four: tf.distribute.TPUStrategy) -> None:
    @tf.function
    def exchanged(x: tf.Tensor) -> tf.Tensor:
        return total(x)

    assert values(four, lambda x: exchanged(x) + exchanged(exchanged(x) * 2), OWN) == [135] * 4


def test_captured_tensors_and_python_arguments_reach_the_inner_function(
    four: tf.distribute.TPUStrategy,
) -> None:
    def outer(x: tf.Tensor) -> tf.Tensor:
        captured = x * 10

        @tf.function
        def inner(y: tf.Tensor, factor: float, flags: dict[str, bool]) -> tf.Tensor:
            return total(y * factor) + captured if flags["sum"] else y

        return inner(x, 2.0, {"sum": True}) + inner(x, 3.0, {"sum": False})

    assert values(four, outer, OWN) == [41, 52, 74, 118]


@pytest.mark.parametrize("depth", [0, 1])
def test_a_branch_is_each_replicas_own_choice(four: tf.distribute.TPUStrategy, depth: int) -> None:
    def choose(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x > 2, lambda: x + number(), lambda: -x)

    assert values(four, nested(choose, depth), OWN) == [-1, -2, 6, 11]


@pytest.mark.parametrize("depth", [0, 1])
def test_replicas_exchange_in_a_branch_that_all_of_them_take(
    four: tf.distribute.TPUStrategy, depth: int
) -> None:
    def choose(x: tf.Tensor, flag: tf.Tensor) -> tf.Tensor:
        return tf.cond(flag, lambda: total(x) + x, lambda: x)

    assert values(four, nested(choose, depth), OWN, [True] * 4) == [16, 17, 19, 23]
    assert values(four, nested(choose, depth), OWN, [False] * 4) == [1, 2, 4, 8]


@pytest.mark.parametrize(("case", "expected"), [(0, [15] * 4), (1, [8] * 4), (2, [1, 2, 4, 8])])
def test_replicas_exchange_in_one_of_several_cases(
    four: tf.distribute.TPUStrategy, case: int, expected: list[int]
) -> None:
    def switched(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        cases = [
            lambda: total(x),
            lambda: xla_ops.xla_all_reduce(x, [[0, 1, 2, 3]], "Max", "CrossReplica"),
            lambda: x,
        ]
        return tf.switch_case(index, cases)

    assert values(four, switched, OWN, np.array([case] * 4, np.int32)) == expected


def test_a_loop_turns_as_often_as_each_replica_wants(four: tf.distribute.TPUStrategy) -> None:
    def counted(times: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i: i < times, lambda i: (i + 1,), [0])[0] + times

    assert values(four, counted, np.array([0, 1, 2, 5], np.int32)) == [0, 2, 4, 10]


@pytest.mark.parametrize("parallel", [1, 10])
@pytest.mark.parametrize("depth", [0, 1])
def test_replicas_exchange_in_every_turn_of_a_loop(
    four: tf.distribute.TPUStrategy, depth: int, parallel: int
) -> None:
    def looped(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, total(y) / 4 + number()),
            [0, x],
            parallel_iterations=parallel,
        )[1]

    # The mean, 3.75, grows by 1.5, the mean of the numbers, in every turn but the last.
    assert values(four, nested(looped, depth), OWN) == [6.75, 7.75, 8.75, 9.75]


def test_the_gradient_of_a_loop_with_an_exchange_is_an_exchange(
    four: tf.distribute.TPUStrategy,
) -> None:
    def differentiated(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, total(y * y)), [0, x])[1]
        return tape.gradient(y, x)

    # y1 = sum x_r^2 = 85 and y2 = 4 y1^2; each replica's y2 counts in every other's gradient:
    # 4 replicas x 2 y1 x 4 replicas x 2 x_r.
    assert values(four, differentiated, OWN) == [4 * 2 * 85 * 4 * 2 * x for x in OWN.tolist()]


def test_loops_and_branches_in_each_other_exchange(four: tf.distribute.TPUStrategy) -> None:
    @tf.function
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, tf.cond(i % 2 == 0, lambda: total(y), lambda: y / 5)

    def looped(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < 3, body, [0, x])[1]

    assert values(four, looped, OWN) == [12] * 4


@pytest.mark.parametrize(
    "function",
    [
        lambda: tf.cond(number() > 1, lambda: total(number()), lambda: 0.0),
        lambda: tf.while_loop(lambda i, _: i < number(), lambda i, x: (i + 1, total(x)), [0.0] * 2),
        lambda: tf.switch_case(tf.cast(number(), tf.int32), [lambda: total(1.0), lambda: 0.0]),
        lambda: tf.while_loop(lambda x: total(x) < number(), lambda x: (x + 1,), [0.0]),
    ],
    ids=["cond", "while", "case", "condition"],
)
def test_replicas_that_disagree_about_an_exchange_are_told(
    four: tf.distribute.TPUStrategy, function: Callable[[], Any]
) -> None:
    def first() -> Any:
        return tf.nest.flatten(function())[0]

    with pytest.raises(tf.errors.InvalidArgumentError, match=DISAGREE):
        replicas.run(four, first)


def test_a_condition_may_exchange(four: tf.distribute.TPUStrategy) -> None:
    def looped(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda y: total(y) < 100, lambda y: (y * 2,), [x])[0]

    assert values(four, looped, OWN) == [8, 16, 32, 64]


def test_variables_seen_only_in_a_branch_are_each_replicas_own(
    four: tf.distribute.TPUStrategy,
) -> None:
    with four.scope():
        mirrored = tf.Variable(0.0)

    def choose(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x > 2, lambda: mirrored.assign_add(x), lambda: mirrored - x)

    assert values(four, choose, OWN) == [-1, -2, 4, 8]
    assert [float(one) for one in mirrored.values] == [0, 0, 4, 8]


@pytest.mark.parametrize("exchanging", [False, True])
def test_random_ops_in_functions_draw_different_numbers_in_each_replica(
    four: tf.distribute.TPUStrategy, exchanging: bool
) -> None:
    @tf.function
    def drawn() -> tf.Tensor:
        x = tf.random.uniform([], seed=3)
        return total(x) + x if exchanging else x

    assert len(set(values(four, drawn))) == 4


@pytest.mark.parametrize("wrap", ["function", "branch"])
def test_an_op_of_a_tpu_only_is_named_where_a_script_hides_it(
    four: tf.distribute.TPUStrategy, wrap: str
) -> None:
    def feed() -> tf.Tensor:
        return tf.raw_ops.InfeedDequeue(dtype=tf.float32, shape=[])

    def hidden() -> tf.Tensor:
        inner = tf.function(feed)
        return inner() if wrap == "function" else tf.cond(number() > 1, inner, lambda: 0.0)

    with pytest.raises(EmulationError, match=r"InfeedDequeue .* runs only on a TPU; take it out"):
        replicas.run(four, hidden)

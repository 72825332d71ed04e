"""A step's update is cut out of it, runs with other sums, and counts as no step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.graph.op import Value
from tf_wu_shard.partial_sums.rounds.finish import update_of
from tf_wu_shard.step.capture import capture
from tf_wu_shard.step.reductions import EnsuredShape
from tf_wu_shard.step.step import Step

SUM = [Value("summed")]


class Model:
    """A weight, its momentum, a rate and a count of steps, on two replicas."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        with strategy.scope():
            self.weight = tf.Variable(tf.zeros([2]), name="weight")
            self.momentum = tf.Variable(tf.zeros([2]), trainable=False, name="momentum")
            self.rate = tf.Variable(0.5, trainable=False, name="rate")
            self.count = tf.Variable(0, trainable=False, name="count")

    def on_each(self, update: Callable[..., Any]) -> None:
        """Updates the components of each replica, on its device."""
        components = (self.weight, self.momentum, self.rate, self.count)
        for own in zip(*(one.values for one in components), strict=True):
            with tf.device(own[0].device):
                update(*own)

    def values(self, name: str) -> list[list[float]]:
        """What each replica has."""
        return [own.numpy().tolist() for own in getattr(self, name).values]


@pytest.fixture
def model(strategy_of: Callable[[int], tf.distribute.Strategy]) -> Model:
    """A new one."""
    return Model(strategy_of(2))


def update_by(
    body: Callable[..., Any],
    *arguments: Any,
    sums: Sequence[Value] = SUM,
    weights: Collection[str] = ("weight",),
    ensured: Sequence[EnsuredShape] = (),
) -> Callable[[Sequence[Any]], None] | None:
    """The update of a function that makes the op `summed`."""
    traced = tf.function(body, autograph=False).get_concrete_function(*arguments)
    dialect: Any = None
    step = Step(traced.graph, capture(traced.graph), dialect)
    return update_of(step, sums, weights, ensured)


def run(update: Callable[[Sequence[Any]], None] | None, *gradients: Sequence[float]) -> None:
    assert update is not None
    update([tf.constant(one) for one in gradients])


TWO = tf.TensorSpec([2])


def test_weights_move_on_every_replica_and_the_count_of_steps_stays(model: Model) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        summed = tf.identity(x * 7.0, name="summed")

        def update(weight: Any, momentum: Any, rate: Any, count: Any) -> None:
            weight.assign_sub(rate * summed)
            count.assign_add(1)

        model.on_each(update)
        return tf.reduce_sum(summed)

    update = update_by(step, TWO)
    run(update, [2.0, 4.0])
    assert model.values("weight") == [[-1.0, -2.0]] * 2
    run(update, [2.0, 0.0])
    assert model.values("weight") == [[-2.0, -2.0]] * 2
    assert [own.numpy() for own in model.count.values] == [0, 0]


def test_what_is_read_again_after_it_was_written_belongs_to_the_update(model: Model) -> None:
    def step(x: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed")

        def update(weight: Any, momentum: Any, rate: Any, count: Any) -> None:
            momentum.assign(0.5 * momentum + summed)
            weight.assign_sub(momentum)

        model.on_each(update)

    update = update_by(step, TWO)
    run(update, [4.0, 8.0])
    run(update, [0.0, 0.0])
    assert model.values("momentum") == [[2.0, 4.0]] * 2
    assert model.values("weight") == [[-6.0, -12.0]] * 2


def test_the_step_itself_goes_on_as_it_was(model: Model) -> None:
    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed")
        model.on_each(lambda weight, *others: weight.assign_sub(summed))

    run(update_by(step.python_function, TWO), [1.0, 1.0])
    step(tf.constant([1.0, 2.0]))
    assert model.values("weight") == [[-2.0, -3.0]] * 2


def test_each_of_several_sums_has_an_argument(model: Model) -> None:
    def step(x: tf.Tensor) -> None:
        first, second = tf.identity(x, name="summed"), tf.identity(x, name="also")

        def update(weight: Any, momentum: Any, *others: Any) -> None:
            weight.assign_sub(first)
            momentum.assign_add(second)

        model.on_each(update)

    run(update_by(step, TWO, sums=[Value("also"), *SUM]), [1.0, 2.0], [3.0, 4.0])
    assert model.values("momentum") == [[1.0, 2.0]] * 2
    assert model.values("weight") == [[-3.0, -4.0]] * 2


def test_a_sum_that_is_passed_on_beside_what_a_replica_has_is_the_sum_alone(model: Model) -> None:
    def step(x: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed")
        passed_on, _ = tf.identity_n([summed, x])
        model.on_each(lambda weight, *others: weight.assign_sub(passed_on))

    run(update_by(step, TWO), [1.0, 2.0])
    assert model.values("weight") == [[-1.0, -2.0]] * 2


def test_the_shape_of_a_gradient_is_known_without_its_batch(model: Model) -> None:
    def step(x: tf.Tensor) -> None:
        own = tf.identity(x, name="own")
        summed = tf.identity(x, name="summed")
        shaped = tf.reshape(summed, tf.shape(own))
        shaped = tf.ensure_shape(shaped, [2])
        model.on_each(lambda weight, *others: weight.assign_sub(shaped))

    open_ = tf.TensorSpec([None])
    assert update_by(step, open_) is None
    ensured = EnsuredShape((Value("own"),), (2,), "weight")
    run(update_by(step, open_, ensured=[ensured]), [1.0, 2.0])
    assert model.values("weight") == [[-1.0, -2.0]] * 2


def test_an_update_by_what_the_step_is_given_cannot_run_alone(model: Model) -> None:
    def step(x: tf.Tensor, rate: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed")
        model.on_each(lambda weight, *others: weight.assign_sub(rate * summed))

    assert update_by(step, TWO, tf.TensorSpec([])) is None


def test_a_tensor_of_outside_is_known(model: Model) -> None:
    rate = tf.constant([2.0, 2.0])

    def step(x: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed")
        model.on_each(lambda weight, *others: weight.assign_sub(rate * summed))

    run(update_by(step, TWO), [1.0, 2.0])
    assert model.values("weight") == [[-2.0, -4.0]] * 2


def test_an_update_with_another_state_than_variables_cannot_run_alone(model: Model) -> None:
    def step(x: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed") * tf.random.uniform([2])
        model.on_each(lambda weight, *others: weight.assign_sub(summed))

    assert update_by(step, TWO) is None


def test_an_update_that_does_not_write_all_weights_is_none(model: Model) -> None:
    def step(x: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed")

        def update(weight: Any, momentum: Any, *others: Any) -> None:
            weight.assign_sub(x)
            momentum.assign_sub(summed)

        model.on_each(update)

    assert update_by(step, TWO) is None
    assert update_by(step, TWO, weights=("weight", "other")) is None
    # Its name is there, as that of a slot may be; but no weight is written.
    assert update_by(step, TWO, weights=("momentum",)) is None


def test_an_update_of_another_weight_is_none(model: Model) -> None:
    def step(x: tf.Tensor) -> None:
        summed = tf.identity(x, name="summed")
        model.on_each(lambda weight, *others: weight.assign_sub(summed))

    assert update_by(step, TWO, weights=("other",)) is None
    assert update_by(step, TWO) is not None


def test_inside_of_another_function_what_that_computes_is_not_known(model: Model) -> None:
    found: list[Any] = []

    @tf.function(autograph=False)
    def outer(x: tf.Tensor) -> None:
        rate = tf.sqrt(x)

        def step(y: tf.Tensor) -> None:
            summed = tf.identity(y, name="summed")
            model.on_each(lambda weight, *others: weight.assign_sub(rate * summed))

        found.append(update_by(step, TWO))

    outer.get_concrete_function(TWO)
    assert found == [None]

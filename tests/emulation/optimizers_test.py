"""Optimizers in custom loops: emulated replicas do what one device does with the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.selection import cases

STEPS, BATCH = 4, 8

# A sum of four replicas' gradients is rounded in another way than one of the batch; elements of
# about 1 move by a few ulps (1.2e-7).
TOLERANCE = 6e-7

# Muon iterates a matrix polynomial, Lion and Adadelta divide by what may be tiny: they pass a
# difference on enlarged.
RESTLESS = {"Muon": 1e-5, "Adadelta": 5e-6}

KERAS = (
    *("SGD", "Adam", "AdamW", "Adamax", "Nadam", "RMSprop", "Adagrad", "Adadelta", "Adafactor"),
    *("Ftrl", "Lion", "Lamb", "Muon"),
)
V1: dict[str, Callable[[], Any]] = {
    "gradient_descent": lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf.compat.v1.train.AdamOptimizer(0.05),
    "rmsprop": lambda: tf.compat.v1.train.RMSPropOptimizer(0.05, centered=True),
    "adagrad": lambda: tf.compat.v1.train.AdagradOptimizer(0.1),
    "adadelta": lambda: tf.compat.v1.train.AdadeltaOptimizer(1.0),
    "ftrl": lambda: tf.compat.v1.train.FtrlOptimizer(0.1),
}

Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def plain(step: Step) -> Step:
    return step


def in_function(step: Step) -> Step:
    return tf.function(step)


def in_two_functions(step: Step) -> Step:
    inner = tf.function(step)

    @tf.function
    def outer(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return inner(x, y) * 1.0

    return outer


def in_branch(step: Step) -> Step:
    def branching(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        # Known only when it runs, and the same in all replicas.
        return tf.cond(tf.shape(x)[1] > 0, lambda: step(x, y), lambda: 0.0)

    return branching


def in_loop(step: Step) -> Step:
    def looping(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, step(x, y)), [0, 0.0])[1]

    return looping


def in_branch_of_loop_of_function(step: Step) -> Step:
    return in_function(in_loop(in_branch(in_function(step))))


# What every run takes: slots of each number, sums of rows, matrix products.
QUICK = {"SGD", "AdamW", "Adafactor", "Muon", "adam", "rmsprop"}

NESTINGS = (
    *(plain, in_function, in_two_functions, in_branch, in_loop),
    in_branch_of_loop_of_function,
)


def weights() -> list[np.ndarray]:
    """Start values of a layer of 8 x 3 and its bias."""
    random = np.random.default_rng(2)
    return [random.standard_normal(shape, np.float32) for shape in ((8, 3), (3,))]


def train(
    strategy: tf.distribute.Strategy, make: Callable[[], Any], nest: Callable[[Step], Step]
) -> list[np.ndarray]:
    """Trains a few steps; returns the weights, slots, a summed metric and the last loss."""
    with strategy.scope():
        optimizer = make()
        # Muon wants to know a variable's path, which only Keras's own have.
        of_keras = isinstance(optimizer, keras.optimizers.Optimizer)
        given = [keras.Variable(value) if of_keras else tf.Variable(value) for value in weights()]
        variables = [one.value for one in given] if of_keras else given
        if of_keras:
            optimizer.build(given)
        metric = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        )

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.matmul(x, variables[0]) + variables[1] - y) ** 2) / BATCH
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, given, strict=True))
        metric.assign_add(loss)
        return loss

    replica_step = nest(step)

    @tf.function
    def train_step(batch: Any) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(replica_step, batch), axis=None)

    random = np.random.default_rng(3)
    rows = [random.standard_normal((STEPS * BATCH, n), np.float32) for n in (8, 3)]
    dataset = tf.data.Dataset.from_tensor_slices(tuple(rows)).batch(BATCH, drop_remainder=True)
    for batch in strategy.experimental_distribute_dataset(dataset):
        loss = train_step(batch)
    if of_keras:
        slots = optimizer.variables
    else:
        names = sorted(optimizer.get_slot_names())
        slots = [optimizer.get_slot(one, name) for name in names for one in variables]
    return [one.numpy() for one in (*variables, *slots, metric.read_value(), loss)]


def check(
    four: tf.distribute.TPUStrategy,
    make: Callable[[], Any],
    nest: Callable[[Step], Step],
    tolerance: float = TOLERANCE,
) -> None:
    emulated = train(four, make, nest)
    single = train(tf.distribute.get_strategy(), make, nest)
    for one, other, start in zip(single, emulated, [*weights(), *single[2:]], strict=True):
        # The loss and the metric are larger than 1.
        scale = max(1.0, float(np.abs(one).max()))
        assert float(np.abs(one - other).max()) <= tolerance * scale
        assert one is start or one.ndim == 0 or (one != start).any()


@pytest.mark.parametrize("nest", NESTINGS, ids=lambda nest: nest.__name__)
@pytest.mark.parametrize("name", cases(["momentum", "adam"], QUICK))
def test_v1_optimizers_update_in_every_nesting(
    four: tf.distribute.TPUStrategy, name: str, nest: Callable[[Step], Step]
) -> None:
    check(four, V1[name], nest)


@pytest.mark.parametrize("name", cases(sorted(V1.keys() - {"momentum", "adam"}), QUICK))
def test_all_v1_optimizers_update(four: tf.distribute.TPUStrategy, name: str) -> None:
    check(four, V1[name], in_branch_of_loop_of_function, 5e-6 if name == "adadelta" else TOLERANCE)


@pytest.mark.parametrize("name", cases(KERAS, QUICK))
def test_all_optimizers_of_keras_update(four: tf.distribute.TPUStrategy, name: str) -> None:
    make = getattr(keras.optimizers, name)
    check(four, make, in_function, RESTLESS.get(name, TOLERANCE))

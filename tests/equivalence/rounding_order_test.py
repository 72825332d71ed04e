"""Updates that multiply several tensors: Grappler reorders the products of both graphs alike.

Three numbers multiplied in another order round otherwise, so a bit differs wherever the sharded
step is reordered in another way than the unsharded one. Sums of three tensors are not among the
formulas: Grappler makes an AddN of them, which puts in front whichever operand's buffer it may
reuse, and two unsharded runs differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.equivalence.in_process import StrategyOf, both

Formula = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

# Of the gradient, the weight, the slot and the learning rate. Each has the operands of a product at
# another place: a scalar or constant, a gradient, what is read, a result, a square, and a value
# that occurs twice.
FORMULAS: dict[str, Formula] = {
    "scalar_first": lambda g, w, s, a: a * g * tf.math.rsqrt(tf.square(s) + 0.5),
    "scalar_inside": lambda g, w, s, a: g * ((a * (s * w)) / (tf.abs(s) + 0.5)),
    "scalar_last": lambda g, w, s, a: 0.1 * (g * tf.square(w)) * a,
    "root_of_sum": lambda g, w, s, a: tf.math.rsqrt(tf.abs(g + s) + 0.5) * w * (a * g),
    "gradient_last": lambda g, w, s, a: (a * w) * (tf.math.rsqrt(tf.abs(w) + 0.5) * g),
    "constants": lambda g, w, s, a: 0.9 * (tf.math.rsqrt(a) * (tf.square(g) * 1.7)),
    "squared_product": lambda g, w, s, a: a * ((w + s) * (s + w)) * g,
    "twice_the_same": lambda g, w, s, a: a * ((g + w) * (s * (w + g))),
}


def trained(strategy: tf.distribute.Strategy) -> list[Any]:
    """Weights, and a slot for each with each formula, after three steps of a loop by hand.

    By hand, as Keras names what its optimizers compute for the second replica so that Grappler
    multiplies there in another order than for the first, in the unsharded step itself.
    """
    random = np.random.default_rng(5)
    inputs, targets = (random.standard_normal((8, n), dtype=np.float32) for n in (20, 3))
    with strategy.scope():
        shapes = ((20, 64), (64,), (64, 3))
        weights = [
            tf.Variable(0.1 * random.standard_normal(shape, dtype=np.float32)) for shape in shapes
        ]
        slots = [
            [tf.Variable(tf.ones(shape), name=f"{name}_of_{shape}") for name in FORMULAS]
            for shape in shapes
        ]
        rate = tf.Variable(0.05, aggregation=tf.VariableAggregation.MEAN)

    def update(weight: Any, gradient: tf.Tensor, *own: Any) -> None:
        before = weight.read_value()
        for slot, formula in zip(own, FORMULAS.values(), strict=True):
            value = slot.read_value()
            new = formula(gradient, before, value, rate.read_value())
            slot.assign(0.9 * value + 0.1 * new)
        weight.assign_sub(0.05 * own[0].read_value())

    def merged(strategy: Any, *gradients: Any) -> None:
        for weight, gradient, own in zip(weights, gradients, slots, strict=True):
            strategy.extended.update(weight, update, args=(gradient, *own))

    def replica() -> None:
        context = tf.distribute.get_replica_context()
        own = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(own * inputs @ weights[0] + weights[1])
            loss = tf.reduce_mean((hidden @ weights[2] - targets) ** 2)
        gradients = context.all_reduce("sum", tape.gradient(loss, weights))
        context.merge_call(merged, args=gradients)

    step = tf.function(lambda: strategy.run(replica))
    for _ in range(3):
        step()
    return [*weights, *(slot for own in slots for slot in own)]


def test_products_of_several_tensors_round_as_they_do_unsharded(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    runs = both(lambda: trained(strategy))
    assert len(runs.reports[-1].variables) == 3
    assert [runs.variables[place].name for place in runs.apart] == []


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"centered": True}], ids=["plain", "momentum", "centered"]
)
def test_rmsprop_of_tf_keras(options: dict[str, Any], strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    random = np.random.default_rng(5)
    inputs = random.standard_normal((64, 20), dtype=np.float32)
    targets = random.standard_normal((64, 3), dtype=np.float32)

    def train() -> list[Any]:
        tf_keras.utils.set_random_seed(7)
        with strategy.scope():
            layers = [tf_keras.layers.Dense(64, "relu"), tf_keras.layers.Dense(3)]
            model = tf_keras.Sequential(layers)
            model.compile(tf_keras.optimizers.RMSprop(0.001, **options), "mse")
        model.fit(inputs, targets, batch_size=16, shuffle=False, verbose=0)
        return [*model.weights, *model.optimizer.variables]

    runs = both(train)
    assert len(runs.reports[-1].variables) == 4
    assert [runs.variables[place].name for place in runs.apart] == []

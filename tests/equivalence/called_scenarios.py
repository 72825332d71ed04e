"""Steps that sum their gradients and have a function of its own apply them, compiled perhaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from tests.equivalence.nested_scenarios import Left, Scenario
from tests.equivalence.tf_keras_scenarios import LegacyNet

k = tf_keras.optimizers


def _compiled(optimizer: Callable[[], Any], *, scaled: bool = False) -> Scenario:
    """An optimizer that has XLA compile each variable's update, as they do where there is a GPU.

    Half of the steps are traced when slots live in shards already.

    Args:
        optimizer: Makes it.
        scaled: Whether losses are scaled: a branch calls what XLA compiles.
    """

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        def compiling() -> Any:
            made = optimizer()
            made.jit_compile = True
            if scaled:
                return tf_keras.mixed_precision.LossScaleOptimizer(
                    made, initial_scale=8.0, dynamic_growth_steps=2
                )
            return made

        net = LegacyNet(strategy, compiling)
        seen = [*net.run(net.train, 3), *net.run(net.train, 2)]
        return Left(net.state, seen)

    return scenario


def _by_hand(steps: str, *, jit_compile: bool, shown: bool = False) -> Scenario:
    """Momentum by hand: in a function of two weights, or in the step itself.

    Args:
        steps: Of each step, "c" where it calls the function, "i" where it does all itself; "b"
            where a branch calls the function, and "s" where that is not taken.
        jit_compile: Whether XLA compiles the function.
        shown: Whether the step shows the second gradient, whose update is left alone for that.
    """

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        shapes = ((48, 40), (40,))
        with strategy.scope():
            weights = [
                tf.Variable(tf.reshape(tf.range(float(tf.reduce_prod(s))), s) / 900) for s in shapes
            ]
            momenta = [tf.Variable(tf.zeros(s), trainable=False) for s in shapes]

        def update(gradients: list[tf.Tensor]) -> None:
            for weight, momentum, gradient in zip(weights, momenta, gradients, strict=True):
                momentum.assign(0.9 * momentum + gradient)
                weight.assign_sub(0.01 * momentum / (tf.sqrt(tf.abs(momentum)) + 0.1))

        called = tf.function(update, jit_compile=jit_compile)

        def branched(gradients: list[tf.Tensor], limit: float) -> None:
            small = tf.reduce_sum(gradients[0]) < limit
            tf.cond(small, lambda: called(gradients), lambda: None)

        ways = {
            "i": update,
            "c": called,
            "b": lambda gradients: branched(gradients, 1e9),
            "s": lambda gradients: branched(gradients, -1e9),
        }

        def train(way: str, rate: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(weights[0]) @ tf.cos(weights[1])[:, None]) * rate
            gradients = tape.gradient(loss, weights)
            summed = tf.distribute.get_replica_context().all_reduce("MEAN", gradients)
            ways[way](summed)
            return loss + tf.reduce_sum(summed[1]) if shown else loss

        @tf.function
        def step(way: str, rate: tf.Tensor) -> Any:
            return strategy.run(train, args=(way, rate))

        rates = strategy.experimental_distribute_values_from_function(
            lambda replica: tf.constant(1.0 + replica.replica_id_in_sync_group)
        )
        seen = [strategy.reduce("SUM", step(way, rates), axis=None).numpy() for way in steps]
        return Left([*weights, *momenta], seen)

    return scenario


SCENARIOS: dict[str, Scenario] = {
    "called": _by_hand("ccc", jit_compile=False),
    "called_in_between": _by_hand("iccii", jit_compile=False),
    "called_compiled": _by_hand("ccc", jit_compile=True),
    "called_compiled_in_part": _by_hand("ccc", jit_compile=True, shown=True),
    "called_in_a_branch": _by_hand("bsbib", jit_compile=False),
    "called_compiled_in_a_branch": _by_hand("ibsb", jit_compile=True),
    "adam_compiled": _compiled(lambda: k.Adam(0.01, amsgrad=True)),
    "adam_averaged_compiled": _compiled(lambda: k.Adam(0.01, weight_decay=0.01, use_ema=True)),
    "adam_scaled_compiled": _compiled(lambda: k.Adam(0.01), scaled=True),
    "rmsprop_compiled": _compiled(lambda: k.RMSprop(0.01)),
    "ftrl_compiled": _compiled(lambda: k.Ftrl(0.01, l1_regularization_strength=1e-3)),
    "adafactor_compiled": _compiled(lambda: k.Adafactor(0.01)),
}

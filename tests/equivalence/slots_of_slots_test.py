"""What an optimizer makes of its slots alone, as earlier steps left them, is sharded with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.equivalence.in_process import StrategyOf, both, in_shards


class WithThreeSlots(keras.optimizers.Optimizer):
    """Keeps three slots for each variable."""

    names: tuple[str, str, str]

    def build(self, variables: list[keras.Variable]) -> None:
        """Makes the slots, all zeros."""
        super().build(variables)
        self.slots = [self.add_optimizer_variables(variables, name) for name in self.names]

    def slots_of(self, variable: Any) -> list[keras.Variable]:
        """The slots of a variable, in the order of their names."""
        index = self._get_variable_index(variable)
        return [slot[index] for slot in self.slots]


class Secant(WithThreeSlots):
    """Estimates a diagonal Hessian of the last step, as Apollo (arXiv 2009.13586) does.

    The estimate of a step is made of the one before and of the last step, and no gradient goes into
    it in between.
    """

    names = ("average", "estimate", "step")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable."""
        average, estimate, step = self.slots_of(variable)
        last = tf.convert_to_tensor(step)
        self.assign_add(average, 0.25 * (gradient - average))
        new = 0.75 * estimate + 0.5 * last * last
        self.assign(estimate, new)
        self.assign(step, average / tf.maximum(tf.abs(new), 0.125))
        self.assign_sub(variable, learning_rate * step)


class Delayed(WithThreeSlots):
    """Adds up the gradients of two steps and applies them in the step after, with momentum.

    So does bert4keras' second way to accumulate gradients: what a step applies is what those before
    it left in a slot, and its own gradient goes in there afterwards.
    """

    names = ("sum", "average", "largest")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable."""
        added, average, largest = self.slots_of(variable)
        now = tf.equal(self.iterations % 2, 0)
        moved = tf.where(now, 0.75 * average + 0.5 * added, average)
        self.assign(average, moved)
        self.assign(largest, tf.maximum(largest, tf.abs(moved)))
        self.assign_sub(variable, tf.where(now, learning_rate * moved, tf.zeros_like(moved)))
        self.assign(added, tf.where(now, 0.0 * added, added) + gradient)


@pytest.mark.parametrize("optimizer_class", [Secant, Delayed])
@pytest.mark.parametrize("ground", ["one process", "tpu"])
def test_it_has_the_same_bits(
    strategy_of: StrategyOf,
    emulated: Callable[[int], Any],
    ground: str,
    optimizer_class: type[keras.optimizers.Optimizer],
) -> None:
    strategy = emulated(2) if ground == "tpu" else strategy_of(2)

    def trained() -> list[keras.Variable]:
        with strategy.scope():
            weights = [keras.Variable(tf.ones((64, 128)) * scale) for scale in (1.0, 3.0)]
            optimizer = optimizer_class(0.0625)
            optimizer.build(weights)

        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(tf.sin(weight * weight)) for weight in weights])
            gradients = tape.gradient(loss, [weight.value for weight in weights])
            optimizer.apply_gradients(zip(gradients, weights, strict=True))

        @tf.function
        def step() -> None:
            strategy.run(replica)

        for _ in range(4):
            step()
        return [*weights, *optimizer.variables]

    runs = both(trained)
    assert runs.apart == []
    (report,) = runs.reports
    assert report.left_alone == () and len(report.variables) == 2
    slots = [v for v in runs.variables[2:] if v.shape.rank]
    assert len(slots) == 6 and all(map(in_shards, slots))

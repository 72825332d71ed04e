"""Branches in which a program applies gradients that it reduced before them.

Each replica reduces the gradients, and whether they are applied, or how, is decided on what all
replicas share: whether the sums are finite, their norm, the number of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.nested_scenarios import Left, Scenario
from tests.equivalence.net import INPUTS, Net

Gradients = Sequence[tf.Tensor]


class ReducedAdam(keras.optimizers.Adam):
    """Adam of gradients that are reduced already."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars


class BranchNet(Net):
    """A net with sums of gradients and a scale of its own, and the number of the step."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__(strategy, lambda: ReducedAdam(0.01))
        with strategy.scope():
            self.sums = [tf.Variable(tf.zeros_like(w), trainable=False) for w in self.weights]
            self.scale = tf.Variable(1.0, trainable=False)

    @property
    def state(self) -> list[Any]:
        return [*super().state, *self.sums, self.scale, self.count]

    def reduced(self, rows: tf.Tensor, wanted: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss of a replica, and the sums of all replicas' gradients."""
        with tf.GradientTape() as tape:
            loss = self.loss(rows, wanted)
        own = tape.gradient(loss, self.weights)
        self.count.assign_add(1)
        return loss, tf.distribute.get_replica_context().all_reduce("SUM", own)

    def descend(self, gradients: Gradients) -> None:
        """Plain gradient descent by hand."""
        for weight, gradient in zip(self.weights, gradients, strict=True):
            weight.assign_sub(0.01 * gradient)


Replica = Callable[[BranchNet, tf.Tensor, tf.Tensor], tf.Tensor]


def finite(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """A step whose gradients are not all finite is skipped."""
    loss, gradients = net.reduced(rows, wanted)
    sound = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
    tf.cond(sound, lambda: net.apply(gradients), lambda: None)
    return loss


def fused(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """One kernel does the whole update of a weight and its slot, where gradients are finite."""
    loss, gradients = net.reduced(rows, wanted)

    def apply() -> None:
        for weight, slot, gradient in zip(net.weights, net.sums, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=slot.handle, lr=0.01, grad=gradient, momentum=0.9
            )

    sound = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
    tf.cond(sound, apply, lambda: None)
    return loss


def clipped(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Gradients are clipped by their norm in a branch, and applied in another one by a function."""
    loss, gradients = net.reduced(rows, wanted)
    norm = tf.reduce_max([tf.reduce_max(tf.abs(g)) for g in gradients])
    used = tf.cond(
        norm > 0.01,
        lambda: [g * (0.01 / norm) for g in gradients],
        lambda: [tf.identity(g) for g in gradients],
    )
    apply = tf.function(net.apply)
    tf.cond(tf.math.is_finite(norm), lambda: apply(used), lambda: None)
    return loss


def rescaled(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """A loss scale that grows with each step and shrinks where one overflows; both write it."""
    loss, gradients = net.reduced(rows, wanted)
    largest = tf.reduce_max([tf.reduce_max(tf.abs(g)) for g in gradients])

    def sound() -> tf.Tensor:
        net.apply([g * net.scale for g in gradients])
        net.scale.assign(net.scale * 2.0)
        return largest

    def overflown() -> tf.Tensor:
        net.scale.assign(net.scale / 2.0)
        return -net.scale

    return loss + tf.cond(largest < 1e30, sound, overflown)


def accumulated(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Sums of gradients are added up before the branch, applied in it, and begun anew."""
    loss, gradients = net.reduced(rows, wanted)
    for own, gradient in zip(net.sums, gradients, strict=True):
        own.assign_add(gradient)
    if net.count % 2 == 0:
        net.apply([own * 0.5 for own in net.sums])
        for own in net.sums:
            own.assign(tf.zeros_like(own))
    return loss


def added_otherwise(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """One branch applies what the other one adds up."""
    loss, gradients = net.reduced(rows, wanted)
    if net.count % 3 == 0:
        net.descend([own + g for own, g in zip(net.sums, gradients, strict=True)])
        for own in net.sums:
            own.assign(tf.zeros_like(own))
    else:
        for own, gradient in zip(net.sums, gradients, strict=True):
            own.assign_add(gradient)
    return loss


def nested(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """A branch in a branch, with numbers that both return."""
    loss, gradients = net.reduced(rows, wanted)
    largest = tf.reduce_max(tf.abs(gradients[0]))
    seen = tf.constant(0.0)
    if largest < 1e30:
        seen = largest
        if net.count % 2 == 0:
            net.apply(gradients)
        else:
            net.descend(gradients)
            seen = -largest
    return loss + seen


def looped(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """The steps are turns of a loop in the program."""
    loss = tf.constant(0.0)
    for turn in tf.range(3):
        loss, gradients = net.reduced(rows, wanted)
        if turn % 2 == 0:
            net.apply(gradients)
    return loss


def switched(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """One of three branches, of which the last one stands for all other numbers."""
    loss, gradients = net.reduced(rows, wanted)
    branches = [
        lambda: net.descend(gradients),
        lambda: net.apply(gradients),
        lambda: net.descend([-g for g in gradients]),
    ]
    tf.switch_case(net.count - 1, branches)
    return loss


def own_choice(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Each replica decides on its own rows: they may disagree."""
    loss, gradients = net.reduced(rows, wanted)
    tf.cond(tf.reduce_sum(rows) < 1e30, lambda: net.descend(gradients), lambda: None)
    return loss


def disagreeing(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """The replicas disagree in every step, so that their weights drift apart."""
    loss, gradients = net.reduced(rows, wanted)
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    tf.cond(number == 1, lambda: net.descend(gradients), lambda: None)
    return loss


def without_rule(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """An update with an op that has no rule, which is not to run in vain."""
    loss, gradients = net.reduced(rows, wanted)
    largest = tf.reduce_max(tf.abs(gradients[0]))
    apart = lambda: net.descend([tf.cumsum(g) for g in gradients])  # noqa: E731
    tf.cond(largest < 1e30, apart, lambda: None)
    return loss


def divided(net: BranchNet, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """In the first step, the branch that is not taken would divide by zero."""
    loss, gradients = net.reduced(rows, wanted)

    def later() -> None:
        factor = tf.cast(8 // (net.count - 1), tf.float32)
        net.descend([g * factor for g in gradients])

    tf.cond(net.count > 1, later, lambda: None)
    return loss


def _trained(replica: Replica) -> Scenario:
    """Two steps, one whose gradients overflow, and two more."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = BranchNet(strategy)
        rows = INPUTS.copy()
        rows[:4] *= np.float32(1e30)
        seen: list[Any] = []
        for count, given in ((2, INPUTS), (1, rows), (2, INPUTS)):
            seen += net.run(lambda own, wanted: replica(net, own, wanted), count, given)
        return Left(net.state, seen)

    return scenario


SCENARIOS: dict[str, Scenario] = {
    replica.__name__: _trained(replica)
    for replica in (
        *(finite, fused, clipped, rescaled, accumulated, added_otherwise, nested, looped, switched),
        *(own_choice, disagreeing, without_rule, divided),
    )
}

"""Optimizers whose updates look at norms, and AdamWeightDecay, as custom Keras optimizers.

The formulas: AdamWeightDecay, Loshchilov and Hutter, arXiv 1711.05101, with the decay applied
before the moments' update; LAMB, You et al., arXiv 1904.00962, algorithm 2; LARS, You et al., arXiv
1708.03888, the learning rate inside the momentum.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def tensor_of(variable: Any) -> Any:
    """The `tf.Variable` of a weight, which Keras hands over as it is or wrapped."""
    return variable.value if isinstance(variable, keras.Variable) else variable


class WithSlots(keras.optimizers.Optimizer):
    """An optimizer with `slot_names`, one slot of each for every weight."""

    slot_names: tuple[str, ...] = ()

    def build(self, variables: list[Any]) -> None:
        if not self.built:
            super().build(variables)
            self.slots: dict[str, list[Any]] = {
                name: [self.add_variable_from_reference(v, name) for v in variables]
                for name in self.slot_names
            }

    def slot(self, name: str, variable: Any) -> tf.Variable:
        slot: tf.Variable = self.slots[name][self._get_variable_index(variable)].value
        return slot


class AdamWeightDecay(WithSlots):
    """Adam with decoupled weight decay, but for the weights whose names are excluded."""

    slot_names = ("m", "v")

    def __init__(
        self, learning_rate: Any = 0.01, excluded: tuple[str, ...] = ("bias",), **options: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self.excluded = excluded

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        weight, m, v = tensor_of(variable), self.slot("m", variable), self.slot("v", variable)
        if not any(name in variable.name for name in self.excluded):
            weight.assign_sub(learning_rate * 0.1 * weight)
        step = tf.cast(self.iterations + 1, tf.float32)
        m.assign(0.9 * m + 0.1 * gradient)
        v.assign(0.99 * v + 0.01 * tf.square(gradient))
        corrected = learning_rate * tf.sqrt(1 - tf.pow(0.99, step)) / (1 - tf.pow(0.9, step))
        weight.assign_sub(corrected * m / (tf.sqrt(v) + 1e-6))


class Lamb(WithSlots):
    """Adam whose step is as long as a multiple of its weight."""

    slot_names = ("m", "v")

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        weight, m, v = tensor_of(variable), self.slot("m", variable), self.slot("v", variable)
        step = tf.cast(self.iterations + 1, tf.float32)
        m.assign(0.9 * m + 0.1 * gradient)
        v.assign(0.99 * v + 0.01 * tf.square(gradient))
        update = m / (1 - tf.pow(0.9, step)) / (tf.sqrt(v / (1 - tf.pow(0.99, step))) + 1e-6)
        update += 0.01 * weight
        weight_norm, update_norm = tf.norm(weight, ord=2), tf.norm(update, ord=2)
        ratio = tf.where(
            weight_norm > 0, tf.where(update_norm > 0, weight_norm / update_norm, 1.0), 1.0
        )
        weight.assign_sub(ratio * learning_rate * update)


class Lars(WithSlots):
    """Momentum whose learning rate is scaled by the norms of each weight and its gradient."""

    slot_names = ("momentum",)

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        weight, momentum = tensor_of(variable), self.slot("momentum", variable)
        gradient_norm, weight_norm = tf.norm(gradient, ord=2), tf.norm(weight, ord=2)
        trust = tf.where(
            weight_norm > 0,
            tf.where(
                gradient_norm > 0,
                0.01 * weight_norm / (gradient_norm + 1e-4 * weight_norm),
                1.0,
            ),
            1.0,
        )
        scaled = learning_rate * trust
        momentum.assign(0.9 * momentum + scaled * (gradient + 1e-4 * weight))
        weight.assign_sub(momentum)


def _clipped(norm: str, grads_and_vars: Any) -> Any:
    """Gradients clipped by the norm of "each" by itself, or by the "global" one of all."""
    gradients, variables = zip(*grads_and_vars, strict=True)
    if norm == "global":
        clipped, _ = tf.clip_by_global_norm(gradients, 0.05)
    else:
        clipped = [tf.clip_by_norm(gradient, 0.02) for gradient in gradients]
    return [*zip(clipped, variables, strict=True)]


class ClippedAfter(keras.optimizers.Adam):
    """Adam whose gradients are clipped after they were summed over the replicas."""

    def __init__(self, norm: str, learning_rate: float) -> None:
        super().__init__(learning_rate)
        self.norm = norm

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return _clipped(self.norm, super()._all_reduce_sum_gradients(grads_and_vars))


class ClippedLamb(Lamb):
    """LAMB of gradients clipped by their global norm after they were summed."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return _clipped("global", super()._all_reduce_sum_gradients(grads_and_vars))


class RowNorms(WithSlots):
    """Momentum along the gradient's rows, each divided by its norm."""

    slot_names = ("momentum",)

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        weight, momentum = tensor_of(variable), self.slot("momentum", variable)
        norms = tf.raw_ops.EuclideanNorm(input=gradient, axis=tf.constant([-1]), keep_dims=True)
        momentum.assign(0.9 * momentum + gradient / (norms + 0.01))
        weight.assign_sub(learning_rate * 0.1 * momentum)


class Largest(WithSlots):
    """Momentum of gradients by their largest elements; a step that is not finite is left out."""

    slot_names = ("momentum",)

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        weight, momentum = tensor_of(variable), self.slot("momentum", variable)
        largest = tf.reduce_max(tf.abs(gradient))
        scaled = gradient / (largest + 1e-3) + tf.reduce_min(gradient, -1, keepdims=True)
        steep = tf.reduce_any(tf.abs(gradient) > 0.5 * largest)
        usable = tf.logical_and(tf.reduce_all(tf.math.is_finite(gradient)), steep)
        momentum.assign(tf.where(usable, 0.9 * momentum + scaled, momentum))
        weight.assign_sub(learning_rate * 0.1 * momentum)


class LoggedNorms(WithSlots):
    """Adam's first moment alone, and the largest norm of a gradient so far, kept for a look."""

    slot_names = ("m",)

    def build(self, variables: list[Any]) -> None:
        if not self.built:
            super().build(variables)
            self.norms = [self.add_variable((), name="norm") for _ in variables]

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        m, norm = self.slot("m", variable), self.norms[self._get_variable_index(variable)].value
        norm.assign(tf.maximum(norm, tf.sqrt(2 * tf.nn.l2_loss(gradient))))
        m.assign(0.9 * m + 0.1 * gradient)
        tensor_of(variable).assign_sub(learning_rate * m)

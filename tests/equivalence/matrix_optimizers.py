"""Optimizers that apply matrix functions to gradients, as people write them for custom loops.

The formulas: Shampoo, Gupta et al., arXiv 1802.09568, algorithm 1, with exponential averages in the
place of sums; the coupled Newton iteration for inverse p-th roots, Anil et al., arXiv 2002.09018,
algorithm 2.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf


def root_by_eigenvalues(matrix: tf.Tensor) -> tf.Tensor:
    """The inverse fourth root of a symmetric matrix [n, n], by its eigenvalues."""
    values, vectors = tf.linalg.eigh(matrix)
    return tf.matmul(vectors * tf.pow(tf.maximum(values, 1e-6), -0.25), vectors, transpose_b=True)


def root_by_newton(matrix: tf.Tensor) -> tf.Tensor:
    """The same by a coupled Newton iteration, until it changes little or for 25 rounds."""
    size = int(matrix.shape[0])
    identity = tf.eye(size)
    scale = 5.0 / (2.0 * tf.norm(matrix))

    def goes_on(count: tf.Tensor, power: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
        return (count < 25) & (tf.reduce_max(tf.abs(power - identity)) > 1e-5)

    def step(count: tf.Tensor, power: tf.Tensor, root: tf.Tensor) -> Any:
        factor = (5.0 * identity - power) / 4.0
        squared = tf.matmul(factor, factor)
        return count + 1, tf.matmul(tf.matmul(squared, squared), power), tf.matmul(root, factor)

    start = (tf.constant(0), scale * matrix, tf.pow(scale, 0.25) * identity)
    _, _, root = tf.while_loop(goes_on, step, start)
    return root


class Shampoo(keras.optimizers.Optimizer):
    """Shampoo for matrices, and momentum for everything else."""

    def __init__(self, learning_rate: Any = 0.01, root: Any = root_by_eigenvalues) -> None:
        super().__init__(learning_rate=learning_rate)
        self.root = root

    def build(self, variables: list[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        self.momentums = [self.add_variable_from_reference(v, "momentum") for v in variables]
        # Of other shapes than the weight: a square for each of its sides.
        self.left, self.right = (
            [
                self.add_variable((v.shape[side],) * 2, name=f"side_{side}")
                if len(v.shape) == 2
                else None
                for v in variables
            ]
            for side in (0, 1)
        )

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        momentum = self.momentums[index].value
        direction = gradient
        if self.left[index] is not None:
            left, right = self.left[index].value, self.right[index].value
            left.assign(0.9 * left + 0.1 * tf.matmul(gradient, gradient, transpose_b=True))
            right.assign(0.9 * right + 0.1 * tf.matmul(gradient, gradient, transpose_a=True))
            roots = [
                self.root(tf.convert_to_tensor(side) + 1e-4 * tf.eye(int(side.shape[0])))
                for side in (left, right)
            ]
            direction = tf.matmul(tf.matmul(roots[0], gradient), roots[1])
        momentum.assign(0.9 * momentum + direction)
        weight = variable.value if isinstance(variable, keras.Variable) else variable
        weight.assign_sub(learning_rate * momentum)


class TensorShampoo(keras.optimizers.Optimizer):
    """Shampoo of tensors of any order, algorithm 2 of the paper, by other ops than the above.

    Statistics are added up, a side longer than 48 has but their diagonal, and roots are kept and
    made anew every third step.
    """

    def build(self, variables: list[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        self.sums: list[list[Any]] = []
        self.roots: list[list[Any]] = []
        for variable in variables:
            shapes = [(n, n) if n <= 48 else (n,) for n in variable.shape]
            for kind, slots in (("sum", self.sums), ("root", self.roots)):
                made = [
                    self.add_variable(s, "ones" if len(s) == 1 else "zeros", name=kind)
                    for s in shapes
                ]
                slots.append(made)

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        index, rank = self._get_variable_index(variable), len(variable.shape)
        direction = gradient
        for side in range(rank):
            total, root = self.sums[index][side].value, self.roots[index][side].value
            others = [axis for axis in range(rank) if axis != side]
            if len(total.shape) == 1:
                total.assign_add(tf.reduce_sum(tf.square(gradient), others))
                root.assign((total + 1e-4) ** (-0.5 / rank))
                factor = tf.linalg.diag(root)
            else:
                total.assign_add(tf.tensordot(gradient, gradient, [others, others]))
                given, kept = tf.convert_to_tensor(total), tf.convert_to_tensor(root)
                root.assign(
                    tf.cond(
                        self.iterations % 3 == 0,
                        functools.partial(power, given, -0.5 / rank),
                        functools.partial(tf.identity, kept),
                    )
                )
                factor = tf.convert_to_tensor(root)
            # The side that is multiplied comes last: after all of them the order is the old one.
            direction = tf.tensordot(direction, factor, [[0], [0]])
        weight = variable.value if isinstance(variable, keras.Variable) else variable
        weight.assign_sub(learning_rate * direction)


def power(matrix: tf.Tensor, exponent: float) -> tf.Tensor:
    """A power of a positive semidefinite matrix [n, n], made well conditioned."""
    values, vectors = tf.linalg.eigh(matrix)
    return tf.einsum("ik,k,jk->ij", vectors, (tf.nn.relu(values) + 0.1) ** exponent, vectors)


class ClippedMuon(keras.optimizers.Muon):
    """Muon of gradients clipped by their global norm after they were summed over the replicas."""

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        gradients, variables = zip(*super()._all_reduce_sum_gradients(grads_and_vars), strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.05)
        return [*zip(clipped, variables, strict=True)]


class Cooled(keras.optimizers.Optimizer):
    """Turns each gradient by a matrix that changes with the step, otherwise for each weight."""

    def build(self, variables: list[Any]) -> None:
        if self.built:
            return
        super().build(variables)
        self.momentums = [self.add_variable_from_reference(v, "momentum") for v in variables]

    def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
        index = self._get_variable_index(variable)
        momentum = self.momentums[index].value
        direction = gradient
        if len(variable.shape) == 2:
            size = int(variable.shape[0])
            heat = 1.0 / tf.cast(self.iterations + index + 1, tf.float32)
            turned = tf.roll(tf.eye(size), 1, 0) * heat + tf.eye(size)
            direction = tf.matmul(turned, gradient)
        momentum.assign(0.9 * momentum + direction)
        weight = variable.value if isinstance(variable, keras.Variable) else variable
        weight.assign_sub(learning_rate * momentum)

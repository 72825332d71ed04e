"""Models of equal names and shapes, and workers that look at them at times and places of their own.

    python -m tests.equivalence.alike_run MODE 1

Run by each worker of a cluster, with TF_CONFIG; with a 1 the flag is on. MODE is one of MODES.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_on
from tests.equivalence.scenarios_run import digest
from tests.strategies import worker_strategy

# How long a worker waits for one that is at another model.
_AGREEMENT_SECONDS = 3.0


class Models:
    """Two models of one weight each; names and shapes are equal.

    Attributes:
        worker: The worker's number.
        variables: The weights and slots of both.
    """

    def __init__(self) -> None:
        self.strategy = worker_strategy()
        self.worker: int = self.strategy.cluster_resolver.task_id
        with self.strategy.scope():
            start = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
            self.weights = [tf.Variable(start * scale, name="kernel") for scale in (1.0, -3.0)]
            self.optimizers = [keras.optimizers.Adam(0.1, name="adam") for _ in self.weights]
            for weight, optimizer in zip(self.weights, self.optimizers, strict=True):
                optimizer.build([weight])
        slots = [v.value for one in self.optimizers for v in one.variables]
        self.variables = [*self.weights, *slots]

    def step(self, model: int, look: Callable[[], None] = lambda: None) -> Any:
        """The traced step of a model, which updates it twice and calls `look` in between."""
        weight, optimizer = self.weights[model], self.optimizers[model]

        def replica(rows: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.tanh(rows @ weight) ** 2)
            gradient = tape.gradient(loss, weight)
            optimizer.apply_gradients([(gradient, weight)])
            look()
            optimizer.apply_gradients([(gradient, weight)])

        return tf.function(lambda rows: self.strategy.run(replica, args=(rows,)), autograph=False)

    def both(self, look: Callable[[], None]) -> Any:
        """A traced step that updates both models twice and calls `look` in between."""

        def replica(rows: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.tanh(tf.add_n([rows @ w for w in self.weights])) ** 2)
            gradients = tape.gradient(loss, self.weights)
            for turn in range(2):
                for pair, optimizer in zip(
                    zip(gradients, self.weights, strict=True), self.optimizers, strict=True
                ):
                    optimizer.apply_gradients([pair])
                if turn == 0:
                    look()

        return tf.function(lambda rows: self.strategy.run(replica, args=(rows,)), autograph=False)


def other_order(models: Models, rows: tf.Tensor) -> None:
    """Workers trace the two models' steps in opposite order, and run them in the same one."""
    steps = [models.step(model) for model in range(2)]
    for step in steps if models.worker == 0 else steps[::-1]:
        step.get_concrete_function(rows)
    _run(rows, *steps)


def one_first(models: Models, rows: tf.Tensor) -> None:
    """One worker traces the second model's step first, alone."""
    steps = [models.step(model) for model in range(2)]
    if models.worker == 0:
        steps[1].get_concrete_function(rows)
    _run(rows, *steps)


def one_looks(models: Models, rows: tf.Tensor) -> None:
    """One worker looks at the weight between its two updates."""
    seen: list[tf.Tensor] = []

    def look() -> None:
        if models.worker == 0:
            seen.append(tf.debugging.check_numerics(models.weights[0].read_value(), "looked at"))

    _run(rows, models.step(0, look))


def each_looks(models: Models, rows: tf.Tensor) -> None:
    """Each worker looks at another of the weights between their two updates."""
    seen: list[tf.Tensor] = []

    def look() -> None:
        weight = models.weights[models.worker]
        seen.append(tf.debugging.check_numerics(weight.read_value(), "looked at"))

    _run(rows, models.both(look))


def same_order(models: Models, rows: tf.Tensor) -> None:
    """All workers trace and run the same."""
    _run(rows, *(models.step(model) for model in range(2)))


MODES = (other_order, one_first, one_looks, each_looks, same_order)


def _run(rows: tf.Tensor, *steps: Any) -> None:
    for _ in range(3):
        for step in steps:
            step(rows)


def main(mode: str, sharded: str) -> None:
    """Prints JSON: the digests of all weights and slots, and the verdicts of all reports."""
    if sharded == "1":
        turn_on(min_step_elements=1, agreement_seconds=_AGREEMENT_SECONDS)
    models = Models()
    rows = np.random.default_rng(models.worker).normal(size=(8, 8)).astype(np.float32)
    next(one for one in MODES if one.__name__ == mode)(models, tf.constant(rows))
    found = [digest([np.array(v.numpy())]) for v in models.variables]
    print(json.dumps([found, [report.verdict for report in tf_wu_shard.reports()]]))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A small net that trains under any strategy in a custom loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.in_process import dense_model, examples

WIDTH, OUTPUTS = 24, 40
INPUTS, TARGETS = examples(16, WIDTH, OUTPUTS)

Replica = Callable[[tf.Tensor, tf.Tensor], Any]


class Net:
    """A net on a strategy, two Dense layers unless given another model, with its optimizer."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        optimizer: Callable[[], Any],
        model: Callable[[], keras.Model] = lambda: dense_model(WIDTH, 64, OUTPUTS),
    ) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.model = model()
            self.optimizer = optimizer()
            self.build_optimizer()
            self.count = tf.Variable(0, trainable=False)
        self.weights = self.trainable()

    def trainable(self) -> list[Any]:
        """The tf.Variables of the weights that are trained."""
        return [variable.value for variable in self.model.trainable_variables]

    def build_optimizer(self) -> None:
        """Makes the slots, which cannot be made inside a traced step."""
        self.optimizer.build(self.model.trainable_variables)

    def loss(self, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean((self.forward(rows) - wanted) ** 2)

    def forward(self, rows: tf.Tensor) -> tf.Tensor:
        output: tf.Tensor = self.model(rows)
        return output

    def train(self, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        """One step of a replica; its loss."""
        with tf.GradientTape() as tape:
            loss = self.loss(rows, wanted)
        self.apply(tape.gradient(loss, self.weights))
        return loss

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        pairs = zip(gradients, self.model.trainable_variables, strict=True)
        self.optimizer.apply_gradients(pairs)

    def run(self, replica: Replica, count: int, rows: np.ndarray = INPUTS) -> list[np.ndarray]:
        """Runs one function on every replica some times; the first replica's results."""

        @tf.function
        def step(*own: Any) -> Any:
            return self.strategy.run(replica, own)

        given = self.spread(rows), self.spread(TARGETS)
        return [
            np.array(self.strategy.experimental_local_results(step(*given))[0])
            for _ in range(count)
        ]

    def spread(self, array: np.ndarray) -> Any:
        replicas = self.strategy.num_replicas_in_sync
        own = np.split(array[: len(array) // replicas * replicas], replicas)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(own[context.replica_id_in_sync_group])
        )

    @property
    def state(self) -> list[Any]:
        return [v.value for v in (*self.model.weights, *self.optimizer.variables)]


def repeated(replica: Replica, turns: int) -> Replica:
    """A function that runs another in a loop of the graph and returns its last result."""

    def loop(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(turns):
            loss = replica(rows, wanted)
        return loss

    return loop

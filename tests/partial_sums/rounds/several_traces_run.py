"""Workers in rounds whose weights several functions train, or several traces of one.

    python -m tests.partial_sums.rounds.several_traces_run

with TF_CONFIG. The first worker is always in time, the other never. It prints what is to be
compared as a line of JSON, by the name of a scenario.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tf_wu_shard
from tests.strategies import worker_strategy
from tf_wu_shard import PartialSums
from tf_wu_shard.partial_sums.options import FLAG


class _Scenarios:
    """All of them, on one strategy."""

    def __init__(self) -> None:
        self._strategy = worker_strategy(1)
        self._number = self._strategy.cluster_resolver.task_id

    def run(self) -> dict[str, Any]:
        """What each came to."""
        tf.config.optimizer.set_experimental_options({FLAG: PartialSums(mode="solo")})
        return {
            "orders": self.orders(),
            "open_shapes": self.open_shapes(),
            "rates": self.rates(),
            "in_a_loop": self.in_a_loop(),
        }

    def orders(self) -> list[list[float]]:
        """Two functions that list the same weights in another order; TensorFlow packs them so."""
        with self._strategy.scope():
            weights = [tf.Variable(tf.zeros([3])), tf.Variable(tf.zeros([3]))]

        def trained(order: list[int]) -> Callable[[], None]:
            def replica() -> None:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(weights[0]) + 100 * tf.reduce_sum(weights[1])
                listed = [weights[number] for number in order]
                self._descend(tape.gradient(loss, listed), listed)

            return self._step(replica)

        for step in (trained([0, 1]), trained([1, 0])) * 2:
            self._dawdle()
            step()
        tf_wu_shard.flush_partial_sums()
        return [weight.numpy().tolist() for weight in weights]

    def open_shapes(self) -> dict[str, Any]:
        """Batches of which one worker's last is shorter: its trace knows less of a gradient."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([4, 2]))
            optimizer = keras.optimizers.Adam(0.1)
            optimizer.build([weight])

        def replica(batch: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                flat = tf.reshape(batch, [tf.shape(batch)[0], -1])
                loss = tf.reduce_sum(flat @ weight)
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

        step = tf.function(
            lambda batch: self._strategy.run(replica, (batch,)), reduce_retracing=True
        )
        for size in (3, 3, 2 if self._number else 3):
            self._dawdle()
            step(tf.ones([size, 4]))
        before = weight.numpy()
        tf_wu_shard.flush_partial_sums()
        after = weight.numpy()
        return {"after": after.tolist(), "is_flushed": bool((after != before).all())}

    def rates(self) -> list[float]:
        """Two traces of one function with a rate each: the step that ran last decides."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([1]))

        def replica(rate: float) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight)
            gradient = tape.gradient(loss, weight)
            summed = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            weight.assign_sub(rate * summed)

        step = tf.function(lambda rate: self._strategy.run(replica, (rate,)))
        traces = [step.get_concrete_function(rate) for rate in (1.0, 1024.0)]
        for _ in range(3):
            self._dawdle()
            traces[0]()
        tf_wu_shard.flush_partial_sums()
        return [float(value) for value in weight.numpy()]

    def in_a_loop(self) -> list[float]:
        """Steps in a loop take a rate from outside of it: what is late waits for the next."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([1]))

        def replica(rate: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight)
            gradient = tape.gradient(loss, weight)
            summed = tf.distribute.get_replica_context().all_reduce("SUM", gradient)
            weight.assign_sub(rate * summed)

        @tf.function
        def steps(count: tf.Tensor, rate: tf.Tensor) -> None:
            for _ in tf.range(count):
                self._strategy.run(replica, (rate,))

        for _ in range(3):
            self._dawdle()
            steps(tf.constant(2), tf.constant(1.0))
        tf_wu_shard.flush_partial_sums()
        steps(tf.constant(1), tf.constant(1.0))
        return [float(value) for value in weight.numpy()]

    def _descend(self, gradients: list[Any], weights: list[Any]) -> None:
        summed = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
        for weight, gradient in zip(weights, summed, strict=True):
            weight.assign_sub(gradient)

    def _step(self, replica: Callable[[], None]) -> Callable[[], None]:
        return tf.function(lambda: self._strategy.run(replica))

    def _dawdle(self) -> None:
        time.sleep(0.1 * self._number)


if __name__ == "__main__":
    print(json.dumps(_Scenarios().run()))

"""Steps of workers that are refused in rounds, and a function that calls a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_wu_shard import WuShardError


class StepsByHand:
    """Steps without a model, each of weights of its own."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy

    def errors(self) -> dict[str, str]:
        """What is said of each step that is refused; of one that is not, nothing."""
        return {name: _error_of(step) for name, step in self._refused().items()}

    def _refused(self) -> dict[str, Callable[[], None]]:
        replicas = tf.distribute.get_replica_context

        def clipped(tape: Any, loss: Any, weight: Any) -> Any:
            mean = replicas().all_reduce("SUM", tape.gradient(loss, weight))
            other = replicas().all_reduce("SUM", tf.reduce_sum(mean))
            return mean / other

        def maximum(tape: Any, loss: Any, weight: Any) -> Any:
            return replicas().all_gather(tape.gradient(loss, weight)[None], 0)[0]

        return {
            "a loss among gradients": self._by_hand(lambda gradient, loss: [gradient, loss]),
            "a statistic": self._by_hand(lambda gradient, loss: [gradient], self._statistic()),
            "tokens": self._called_by(self._by_tokens),
            "tokens in a loop": self._called_by(self._by_tokens_in_a_loop),
            "a gather by the caller": self._called_by(self._gathered),
            "a sum of a sum": self.one_weight(clipped),
            "a gather": self.one_weight(maximum),
        }

    def _called_by(self, caller: Callable[[Any, tf.Tensor], Any]) -> Any:
        """A function that calls a step, which is a function of its own."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([4]))

        @tf.function
        def replica(batch: tf.Tensor, tokens: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * batch) / tokens
            gradient = tape.gradient(loss, weight)
            weight.assign_sub(tf.distribute.get_replica_context().all_reduce("SUM", gradient))
            return loss[None]

        @tf.function
        def step() -> Any:
            return caller(replica, tf.ones([4]))

        return step

    def _by_tokens(self, replica: Any, batch: tf.Tensor) -> None:
        tokens = self._strategy.reduce("SUM", tf.reduce_sum(batch), axis=None)
        self._strategy.run(replica, (batch, tokens))

    def _by_tokens_in_a_loop(self, replica: Any, batch: tf.Tensor) -> None:
        tokens = self._strategy.reduce("SUM", tf.reduce_sum(batch), axis=None)
        for _ in tf.range(2):
            self._strategy.run(replica, (batch, tokens))

    def _gathered(self, replica: Any, batch: tf.Tensor) -> Any:
        losses = self._strategy.run(replica, (batch, tf.constant(1.0)))
        return self._strategy.gather(losses, axis=0)

    def averaged(self) -> Any:
        """A function that calls a step and averages the losses that it returns."""
        return self._called_by(self._mean)

    def _mean(self, replica: Any, batch: tf.Tensor) -> Any:
        losses = self._strategy.run(replica, (batch, tf.constant(1.0)))
        return self._strategy.reduce("MEAN", losses, axis=None)[0]

    def _statistic(self) -> tf.Variable:
        with self._strategy.scope():
            # As variables are trainable where nobody says otherwise.
            return tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)

    def _by_hand(
        self, summed: Callable[[Any, Any], list[Any]], statistic: tf.Variable | None = None
    ) -> Callable[[], None]:
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([64]))

        def replica() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * weight)
            if statistic is not None:
                statistic.assign(loss)
            own = summed(tape.gradient(loss, weight), loss)
            gradient, *others = tf.distribute.get_replica_context().all_reduce("SUM", own)
            weight.assign_sub(gradient)
            return others

        @tf.function
        def step() -> Any:
            return self._strategy.run(replica)

        return step

    def one_weight(self, gradient: Callable[[Any, Any, Any], Any]) -> Callable[[], None]:
        """A step that updates one weight with what is made of a tape, a loss and the weight."""
        with self._strategy.scope():
            weight = tf.Variable(tf.zeros([64]))
            optimizer = keras.optimizers.Adam()
            optimizer.build([weight])

        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * weight)
            optimizer.apply_gradients([(gradient(tape, loss, weight), weight)])

        @tf.function
        def step() -> None:
            self._strategy.run(replica)

        return step


def _error_of(step: Callable[[], None]) -> str:
    try:
        step()
    except WuShardError as error:
        return str(error)
    return ""

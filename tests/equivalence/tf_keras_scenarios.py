"""Ways of training with the Keras before 3, where its optimizers branch across all replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from tests.equivalence.nested_scenarios import Left, Scenario
from tests.equivalence.net import OUTPUTS, WIDTH, Net

_Scaling = tf_keras.mixed_precision.LossScaleOptimizer


class _LegacyNet(Net):
    """A net of tf_keras; its optimizer may scale losses."""

    def __init__(self, strategy: tf.distribute.Strategy, optimizer: Callable[[], Any]) -> None:
        layers = tf_keras.layers
        super().__init__(
            strategy,
            optimizer,
            lambda: tf_keras.Sequential(
                [layers.Input((WIDTH,)), layers.Dense(64, "tanh"), layers.Dense(OUTPUTS)]
            ),
        )

    def trainable(self) -> list[Any]:
        return list(self.model.trainable_variables)

    def build_optimizer(self) -> None:
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        if not isinstance(inner, tf_keras.optimizers.legacy.Optimizer):
            inner.build(self.model.trainable_variables)

    @property
    def state(self) -> list[Any]:
        variables = self.optimizer.variables
        return [*self.model.weights, *(variables() if callable(variables) else variables)]


def _overflowing(optimizer: Callable[[], Any]) -> Scenario:
    """Losses are scaled; in the second and the fifth step one replica's gradient overflows."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        scaled = lambda: _Scaling(optimizer(), initial_scale=8.0, dynamic_growth_steps=2)  # noqa: E731
        net = _LegacyNet(strategy, scaled)

        def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context()
            last = replica.num_replicas_in_sync - 1
            net.count.assign_add(1)
            bad = tf.logical_and(net.count % 3 == 2, replica.replica_id_in_sync_group == last)
            with tf.GradientTape() as tape:
                loss = net.loss(rows, wanted) * tf.where(bad, float("inf"), 1.0)
                scaled = net.optimizer.get_scaled_loss(loss)
            gradients = tape.gradient(scaled, net.weights)
            net.apply(net.optimizer.get_unscaled_gradients(gradients))
            return tf.where(bad, 0.0, loss)

        return Left(net.state, net.run(train, 6))

    return scenario


def overwritten(strategy: tf.distribute.Strategy) -> Left:
    """Every second step the weights become their averages."""
    adam = tf_keras.optimizers.Adam
    net = _LegacyNet(strategy, lambda: adam(0.01, use_ema=True, ema_overwrite_frequency=2))
    return Left(net.state, net.run(net.train, 5))


SCENARIOS: dict[str, Scenario] = {
    "overflowing": _overflowing(lambda: tf_keras.optimizers.Adam(0.01)),
    "overflowing_fused": _overflowing(lambda: tf_keras.optimizers.legacy.Adam(0.01)),
    "overwritten": overwritten,
}

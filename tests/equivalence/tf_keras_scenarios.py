"""Ways of training with the Keras before 3, where its optimizers branch across all replicas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from tests.equivalence.nested_scenarios import Left, Scenario
from tests.equivalence.net import OUTPUTS, WIDTH, Net

_Scaling = tf_keras.mixed_precision.LossScaleOptimizer


class LegacyNet(Net):
    """A net of tf_keras, which may begin with a table; its optimizer may scale losses."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        optimizer: Callable[[], Any],
        with_table: bool = False,
    ) -> None:
        layers = tf_keras.layers

        def model() -> Any:
            looked_up = [
                layers.Lambda(lambda x: tf.abs(x) * 8.0 % 30.0),
                layers.Embedding(30, 6),
                layers.Flatten(),
            ]
            dense = [layers.Dense(64, "tanh"), layers.Dense(OUTPUTS)]
            first = looked_up if with_table else []
            return tf_keras.Sequential([layers.Input((WIDTH,)), *first, *dense])

        super().__init__(strategy, optimizer, model)

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


def _overflowing(optimizer: Callable[[], Any], with_table: bool = False) -> Scenario:
    """Losses are scaled; in the second and the fifth step one replica's gradient overflows.

    Half of the steps are traced when slots live in shards already.
    """

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        def scaled() -> Any:
            return _Scaling(optimizer(), initial_scale=8.0, dynamic_growth_steps=2)

        net = LegacyNet(strategy, scaled, with_table)

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

        seen = [*net.run(train, 3), *net.run(train, 3)]
        return Left(net.state, seen)  # some slots are made by a step

    return scenario


def overwritten(strategy: tf.distribute.Strategy) -> Left:
    """Every second step the weights become their averages; the step is traced twice."""
    adam = tf_keras.optimizers.Adam
    net = LegacyNet(strategy, lambda: adam(0.01, use_ema=True, ema_overwrite_frequency=2))
    return Left(net.state, [*net.run(net.train, 3), *net.run(net.train, 2)])


class _Averaging(tf_keras.optimizers.legacy.SGD):
    """Keeps averages as tensorflow_addons' SWA does: a function yields them, to be waited for."""

    def _create_slots(self, var_list: list[Any]) -> None:
        for weight in var_list:
            self.add_slot(weight, "average")

    @tf.function
    def _average(self, weight: Any, average: Any) -> Any:
        count = tf.cast(self.iterations // 2, tf.float32)
        return tf.cond(
            self.iterations % 2 == 0,
            lambda: average.assign((average * count + weight) / (count + 1.0)),
            lambda: tf.identity(average),
        )

    def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
        applied = super()._resource_apply_dense(grad, var, apply_state)
        with tf.control_dependencies([applied]):
            average = self._average(var, self.get_slot(var, "average"))
        return tf.group(applied, average)


def averaged_by_a_function(strategy: tf.distribute.Strategy) -> Left:
    """What a function yields of a slot is only waited for; the step is traced twice."""
    net = LegacyNet(strategy, lambda: _Averaging(0.05))
    net.optimizer._create_all_weights(net.trainable())
    return Left(net.state, [*net.run(net.train, 3), *net.run(net.train, 2)])


def pulled_back(strategy: tf.distribute.Strategy) -> Left:
    """One op updates a weight; in every second step a branch moves slow weights, and it to them."""
    net = LegacyNet(strategy, lambda: tf_keras.optimizers.legacy.Adam(0.01))
    with strategy.scope():
        slow = [tf.Variable(weight, trainable=False) for weight in net.weights]

    def train(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        def pull() -> int:
            for weight, own in zip(net.weights, slow, strict=True):
                weight.assign(own.assign_add(0.5 * (weight - own)))
            return 0

        loss = net.train(rows, wanted)
        net.count.assign_add(1)
        tf.cond(net.count % 2 == 0, pull, lambda: 0)
        return loss

    seen = [*net.run(train, 3), *net.run(train, 2)]
    return Left([*net.state, *slow], seen)


def _applied(of: Callable[[Any, Callable[[], int]], tf.Tensor]) -> Scenario:
    """A fused update in a step, then one that is applied in a branch around all replicas."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        shape = (48, 40)
        start = tf.reshape(tf.range(48.0 * 40), shape) / 100
        with strategy.scope():
            weight = tf.Variable(start, name="weight")
            slots = [tf.Variable(tf.zeros(shape), trainable=False) for _ in range(2)]

        def update(w: Any, m: Any, v: Any, gradient: tf.Tensor) -> Any:
            rates = {"beta1_power": 0.9, "beta2_power": 0.99, "lr": 0.01, "epsilon": 1e-7}
            return tf.raw_ops.ResourceApplyAdam(
                var=w.handle, m=m.handle, v=v.handle, beta1=0.9, beta2=0.99, grad=gradient, **rates
            )

        def apply(_: Any, gradient: Any) -> None:
            strategy.extended.update(weight, update, args=(*slots, gradient), group=False)

        def train(rate: tf.Tensor, merged: Callable[..., None]) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.sin(weight)) * rate
            replica = tf.distribute.get_replica_context()
            gradient = replica.all_reduce("SUM", tape.gradient(loss, weight))
            replica.merge_call(merged, args=(gradient,))

        rates = strategy.experimental_distribute_values_from_function(
            lambda replica: tf.constant(1.0 + replica.replica_id_in_sync_group)
        )

        @tf.function
        def plain(rate: Any) -> None:
            strategy.run(lambda rate: train(rate, apply), (rate,))

        @tf.function
        def branching(rate: Any, taken: tf.Tensor) -> None:
            def branch(_: Any, gradient: Any) -> None:
                def applied() -> int:
                    apply(_, gradient)
                    return 1

                of(taken, applied)

            strategy.run(lambda rate: train(rate, branch), (rate,))

        plain(rates)
        for taken in (True, False, True):
            branching(rates, tf.constant(taken))
        plain(rates)
        return Left([weight, *slots], [])

    return scenario


def _with_an_effect(taken: tf.Tensor, applied: Callable[[], int], before: bool) -> tf.Tensor:
    """An update beside what must not run where its branch is not taken, or that waits for it."""

    def both() -> int:
        noted = tf.print("taken", output_stream="file:///dev/null")
        with tf.control_dependencies([noted] if before else []):
            return applied()

    return tf.cond(taken, both, lambda: 0)


def _adam(**clipping: float) -> Any:
    return tf_keras.optimizers.Adam(0.01, **clipping)


_KERAS, _LEGACY = tf_keras.optimizers, tf_keras.optimizers.legacy

# Optimizers whose updates of rows stand in a branch: some look them up, some make them dense.
_OF_ROWS: dict[str, Callable[[], Any]] = {
    "adadelta": lambda: _KERAS.Adadelta(0.1),
    "adagrad": lambda: _KERAS.Adagrad(0.1),
    "adamax": lambda: _KERAS.Adamax(0.1),
    "adamw": lambda: _KERAS.AdamW(0.1),
    "clipped_adam": lambda: _adam(clipnorm=0.1),
    "ftrl": lambda: _KERAS.Ftrl(0.1),
    "lion": lambda: _KERAS.Lion(0.1),
    "nesterov": lambda: _KERAS.SGD(0.1, momentum=0.9, nesterov=True),
    "legacy_adadelta": lambda: _LEGACY.Adadelta(0.1),
    "legacy_adagrad": lambda: _LEGACY.Adagrad(0.1),
    "legacy_adam": lambda: _LEGACY.Adam(0.1),
    "legacy_adamax": lambda: _LEGACY.Adamax(0.1),
    "legacy_amsgrad": lambda: _LEGACY.Adam(0.1, amsgrad=True),
    "legacy_centered_rmsprop": lambda: _LEGACY.RMSprop(0.1, centered=True),
    "legacy_ftrl": lambda: _LEGACY.Ftrl(0.1),
    "legacy_nadam": lambda: _LEGACY.Nadam(0.1),
}

SCENARIOS: dict[str, Scenario] = {
    "overflowing": _overflowing(_adam),
    "overflowing_beside_rows": _overflowing(lambda: _adam(global_clipnorm=0.1), with_table=True),
    "overflowing_beside_fused_rows": _overflowing(
        lambda: tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9), with_table=True
    ),
    "overflowing_fused": _overflowing(lambda: tf_keras.optimizers.legacy.Adam(0.01)),
    "overflowing_overwritten": _overflowing(
        lambda: tf_keras.optimizers.SGD(0.1, 0.9, use_ema=True, ema_overwrite_frequency=2),
        with_table=True,
    ),
    "overwritten": overwritten,
    "averaged_by_a_function": averaged_by_a_function,
    "pulled_back": pulled_back,
    "applied_in_a_branch": _applied(lambda taken, applied: tf.cond(taken, applied, lambda: 0)),
    "applied_beside_an_effect": _applied(functools.partial(_with_an_effect, before=False)),
    "applied_after_an_effect": _applied(functools.partial(_with_an_effect, before=True)),
    **{
        f"overflowing_rows_of_{name}": _overflowing(optimizer, with_table=True)
        for name, optimizer in _OF_ROWS.items()
    },
}

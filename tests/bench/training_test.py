"""The measured step: the user's `fit`, and the same step without its update."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tf_wu_shard.bench.settings import Settings
from tf_wu_shard.bench.training import BATCHES, UnusedGradients, examples, fit

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def test_the_step_without_update_computes_every_gradient_and_moves_no_weight(
    strategy_of: Strategies,
) -> None:
    with strategy_of(2).scope():
        weights = [keras.Variable([1.0, 2.0]), keras.Variable([[3.0], [4.0]])]
        optimizer = UnusedGradients()
        optimizer.build(weights)

    @tf.function
    def step(factors: tf.Tensor) -> tf.Tensor:
        def on_replica(factor: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = factor * tf.add_n([tf.reduce_sum(weight.value**2) for weight in weights])
            gradients = tape.gradient(loss, [weight.value for weight in weights])
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return optimizer._touched.read_value()

        return strategy_of(2).run(on_replica, args=(factors,))

    factors = strategy_of(2).experimental_distribute_values_from_function(
        lambda context: tf.constant(float(context.replica_id_in_sync_group + 1))
    )
    touched = strategy_of(2).experimental_local_results(step(factors))
    # The first elements' gradients are 2 * 1 and 2 * 3, times each replica's own factor.
    np.testing.assert_array_equal([value.numpy() for value in touched], [8.0, 16.0])
    np.testing.assert_array_equal(weights[0].numpy(), [1.0, 2.0])
    assert len(optimizer.variables) == 2, "a counter and a rate, and no slot"


def test_data_are_whole_global_batches_that_depth_has_no_part_in() -> None:
    settings = Settings(replicas=3, batch=5, width=16, depth=7)
    inputs, targets = examples(settings)
    assert inputs.shape == targets.shape == (BATCHES * 3 * 5, 16)


def test_between_is_called_before_the_first_step_and_after_each(strategy_of: Strategies) -> None:
    settings = Settings(replicas=2, batch=1, width=4, depth=1)
    with strategy_of(2).scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(4)])
        model.compile("sgd", keras.losses.MeanSquaredError())
    calls: list[tuple[float, ...]] = []

    def between(*step: float) -> None:
        calls.append(step)
        if len(calls) == 3:
            raise KeyboardInterrupt

    try:
        fit(model, settings, between)
    except KeyboardInterrupt:
        assert [len(call) for call in calls] == [0, 2, 2]
        assert model.optimizer.iterations.numpy() == 2
    else:
        raise AssertionError("fit ended by itself")

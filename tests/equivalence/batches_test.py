"""Batches that are not like the first: another size, a rest, an empty one, one that breaks."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.in_process import (
    StrategyOf,
    both,
    compiled,
    examples,
    in_shards,
    state,
    turn_on,
)
from tests.selection import cases


def test_retracing_on_another_batch_size_changes_nothing(strategy_of: StrategyOf) -> None:
    inputs, targets = examples(24)

    def train() -> list[keras.Variable]:
        model = compiled(strategy_of(2))
        # One epoch, then a step of another static shape, then the first shape again.
        model.fit(inputs[:16], targets[:16], batch_size=8, shuffle=False, verbose=0)
        model.train_on_batch(inputs[16:22], targets[16:22])
        model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert len(runs.reports) >= 2
    assert {report.verdict for report in runs.reports} == {"sharded"}
    assert sum(in_shards(variable) for variable in runs.variables[4:]) == 8


def test_a_retraced_custom_loop_goes_on_with_the_same_shards(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    inputs, targets = examples(10)

    def train() -> list[keras.Variable]:
        model = compiled(strategy, built=True)

        def step(count: int) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(inputs[:count]) - targets[:count]) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        train_step = tf.function(lambda count: strategy.run(step, (count,)))
        for count in (4, 10, 4, 6):
            train_step(count)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert [report.verdict for report in runs.reports] == ["sharded"] * 3


@pytest.mark.parametrize("rest", cases([1, 2, 3], {1}))
def test_a_partial_last_batch_gives_what_it_gives_unmodified(
    strategy_of: StrategyOf, rest: int
) -> None:
    inputs, targets = examples(8 + rest)

    def train() -> list[keras.Variable]:
        model = compiled(strategy_of(2))
        model.fit(inputs, targets, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"


def test_what_the_strategy_cannot_split_raises_as_it_does_unmodified(
    summing_strategy_of: StrategyOf,
) -> None:
    # 13 examples in one batch are split 4, 4, 4 and 1, and the metrics of that cannot be added.
    inputs, targets = examples(13)

    def message() -> str:
        model = compiled(summing_strategy_of(4))
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            model.fit(inputs, targets, batch_size=13, shuffle=False, verbose=0)
        return str(caught.value)

    unsharded = message()
    assert "AddN" in unsharded
    turn_on()
    assert message() == unsharded


def test_batchnorm_on_an_empty_replica_gives_the_same_nans(strategy_of: StrategyOf) -> None:
    inputs, targets = examples(9)

    def build() -> keras.Model:
        return keras.Sequential(
            [
                keras.layers.Input((6,)),
                keras.layers.Dense(5),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(3),
            ]
        )

    def train() -> list[keras.Variable]:
        model = compiled(strategy_of(2), build)
        model.fit(inputs, targets, batch_size=4, shuffle=False, verbose=0)
        return state(model)

    runs = both(train)
    # Were nothing non-finite, the claim would be empty.
    assert any(not np.isfinite(value).all() for value in runs.unsharded)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"


def test_a_nan_in_one_replicas_gradient_reaches_the_same_places(strategy_of: StrategyOf) -> None:
    inputs, targets = examples(16)
    # The second replica's second batch; a whole column, and so a part of the first kernel.
    inputs[6, 2] = np.nan

    def train() -> list[keras.Variable]:
        model = compiled(strategy_of(2), optimizer=lambda: keras.optimizers.Adam(0.01))
        model.fit(inputs, targets, batch_size=4, shuffle=False, verbose=0)
        return state(model)

    runs = both(train)
    assert any(np.isnan(value).any() for value in runs.unsharded)
    assert runs.apart == []


def test_an_infinite_gradient_element_stays_in_its_lane(summing_strategy_of: StrategyOf) -> None:
    inputs, targets = examples(8)
    strategy = summing_strategy_of(4)
    poison = tf.constant(np.where(np.arange(42).reshape(6, 7) == 20, np.inf, 0), tf.float32)

    def train() -> list[keras.Variable]:
        model = compiled(
            strategy, optimizer=lambda: keras.optimizers.SGD(0.1, momentum=0.9), built=True
        )

        def step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(inputs) - targets) ** 2)
            kernel, *others = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(
                zip([kernel + poison, *others], model.trainable_variables, strict=True)
            )

        tf.function(lambda: strategy.run(step))()
        return state(model)

    runs = both(train)
    kernel = runs.sharded[0].reshape(-1)
    assert np.flatnonzero(~np.isfinite(kernel)).tolist() == [20]
    for one, other in zip(runs.unsharded, runs.sharded, strict=True):
        np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))


def test_the_end_of_data_of_unknown_length_decays_no_weight(strategy_of: StrategyOf) -> None:
    """Keras takes one step more to find it; the decay of AdamW needs no data."""
    nothing = np.zeros((24, 5), np.float32)
    data = tf.data.Dataset.from_tensor_slices((nothing, nothing)).batch(8)

    def kernel(length: int) -> np.ndarray:
        with strategy_of(2).scope():
            # Nothing but the decay moves it.
            model = keras.Sequential([keras.layers.Dense(5, kernel_initializer="ones")])
            model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.5), "mse")
        model.fit(data.apply(tf.data.experimental.assert_cardinality(length)), epochs=2, verbose=0)
        (decayed, _) = model.trainable_variables
        return np.array(decayed.numpy())

    turn_on()
    known, unknown = kernel(3), kernel(tf.data.UNKNOWN_CARDINALITY)
    assert known.tobytes() == unknown.tobytes()
    assert known.max() < 1.0

"""Programs that are more than one model, one loss and `fit`: the flag changes no result."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import (
    StrategyOf,
    both,
    compiled,
    dense_model,
    examples,
    in_shards,
    state,
    turn_off,
    turn_on,
)
from tf_wu_shard import models


def _fit(model: keras.Model, count: int = 16, **arguments: Any) -> Any:
    inputs, targets = examples(count)
    return model.fit(inputs, targets, batch_size=4, shuffle=False, verbose=0, **arguments)


def _shapes(report: Any) -> list[tuple[int, ...]]:
    return sorted(variable.shape for variable in report.variables)


def test_frozen_layers_stay_out_of_it(strategy_of: StrategyOf) -> None:
    def train() -> list[keras.Variable]:
        model = compiled(strategy_of(2))
        model.layers[0].trainable = False
        with strategy_of(2).scope():
            model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError())
        _fit(model)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert _shapes(runs.reports[-1]) == [(3,), (7, 3)]
    assert runs.reports[-1].left_alone == ()


def test_a_layer_frozen_between_two_fits_stays_where_it_was(strategy_of: StrategyOf) -> None:
    def train() -> list[keras.Variable]:
        model = compiled(strategy_of(2))
        _fit(model)
        model.layers[0].trainable = False
        with strategy_of(2).scope():
            model.compile(keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError())
        _fit(model)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert [len(report.variables) for report in runs.reports] == [4, 2]


def test_tied_weights_are_one_update(strategy_of: StrategyOf) -> None:
    ids, _ = models.data("dense_embedding", 16, seed=1)

    def build() -> keras.Model:
        embedding = models.build("dense_embedding").layers[0]
        tokens = keras.layers.Input((12,), dtype="int32")
        return keras.Model(tokens, embedding(embedding(tokens), reverse=True))

    def train() -> list[keras.Variable]:
        model = compiled(
            strategy_of(2),
            build,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(ids, ids, batch_size=4, shuffle=False, verbose=0)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert _shapes(runs.reports[-1]) == [(101, 16)]


def test_a_variable_of_two_losses_gets_both_updates(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    inputs, targets = examples(4)

    def train() -> list[keras.Variable]:
        with strategy.scope():
            model = dense_model()
            optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, momentum=0.9)]
            for optimizer in optimizers:
                optimizer.build(model.trainable_variables)

        def step() -> None:
            with tf.GradientTape(persistent=True) as tape:
                error = model(inputs) - targets
                losses = tf.reduce_mean(error**2), tf.reduce_mean(tf.abs(error))
            for optimizer, loss in zip(optimizers, losses, strict=True):
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        train_step = tf.function(lambda: strategy.run(step))
        for _ in range(4):
            train_step()
        return [*model.weights, *(v for one in optimizers for v in one.variables)]

    runs = both(train)
    assert runs.apart == []
    report = runs.reports[-1]
    assert report.verdict == "sharded"
    # The two updates of a weight are entangled, so each has three slots: m, v and momentum.
    assert [len(variable.slots) for variable in report.variables] == [3] * 4


def test_an_update_by_hand_in_a_branch_that_each_replica_takes(strategy_of: StrategyOf) -> None:
    def train() -> list[tf.Variable]:
        strategy = strategy_of(2)
        with strategy.scope():
            weight = tf.Variable(tf.ones([6, 4]))
        inputs = tf.constant(examples(4)[0])

        def replica(factor: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.tanh(inputs @ weight)) * factor
            gradient = tape.gradient(loss, weight)
            total = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
            finite = tf.reduce_all(tf.math.is_finite(total))
            tf.cond(finite, lambda: [weight.assign_sub(0.1 * total)], lambda: [weight.value()])

        step = tf.function(lambda factor: strategy.run(replica, (factor,)))
        for factor in (1.0, 2.0, float("inf"), 0.5):
            step(tf.constant(factor))
        return [weight]

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"
    assert runs.reports[-1].emitted == {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 1}


def test_two_models_and_two_optimizers_share_a_step(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    inputs, targets = examples(4)

    def train() -> list[keras.Variable]:
        with strategy.scope():
            first, second = dense_model(), dense_model(width=3, outputs=6)
            optimizers = keras.optimizers.Adam(0.01), keras.optimizers.RMSprop(0.01)
            for model, optimizer in zip((first, second), optimizers, strict=True):
                optimizer.build(model.trainable_variables)

        def step() -> None:
            with tf.GradientTape(persistent=True) as tape:
                out = first(inputs)
                forth = tf.reduce_mean((out - targets) ** 2)
                back = tf.reduce_mean((second(out) - inputs) ** 2)
                together = forth + back
            for model, optimizer, loss in zip(
                (first, second), optimizers, (together, back), strict=True
            ):
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        train_step = tf.function(lambda: strategy.run(step))
        for _ in range(4):
            train_step()
        models_variables = [*first.weights, *second.weights]
        return [*models_variables, *(v for one in optimizers for v in one.variables)]

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"
    slots = sorted(len(variable.slots) for variable in runs.reports[-1].variables)
    assert slots == [1] * 4 + [2] * 4


def test_the_flag_turned_on_and_off_between_models_holds_for_each(strategy_of: StrategyOf) -> None:
    trained = []
    for on in (False, True, False, True):
        (turn_on if on else turn_off)()
        keras.utils.set_random_seed(3)
        model = compiled(strategy_of(2))
        _fit(model)
        trained.append(model)
    values = [[v.numpy().tobytes() for v in state(model)] for model in trained]
    assert values[0] == values[1] == values[2] == values[3]
    cut = [sum(in_shards(v) for v in model.optimizer.variables) for model in trained]
    assert cut == [0, 8, 0, 8]
    assert len(tf_wu_shard.reports()) == 2


def test_a_sparse_embedding_is_sharded_beside_dense_variables(strategy_of: StrategyOf) -> None:
    inputs, labels = models.data("sparse_embedding", 16, seed=1)

    def train() -> list[keras.Variable]:
        model = compiled(
            strategy_of(2),
            lambda: models.build("sparse_embedding"),
            loss=models.loss("sparse_embedding"),
        )
        model.fit(inputs, labels, batch_size=4, shuffle=False, verbose=0)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    report = runs.reports[-1]
    assert report.verdict == "sharded" and not report.left_alone
    assert len(_shapes(report)) == 5
    assert {(5,), (32,), (32, 5), (192, 32)} < set(_shapes(report))


def test_dropout_draws_the_same_masks(strategy_of: StrategyOf) -> None:
    images, labels = models.data("conv_batchnorm", 16, seed=2)

    def train() -> list[keras.Variable]:
        model = compiled(
            strategy_of(2),
            lambda: models.build("conv_batchnorm", dropout=0.5),
            loss=models.loss("conv_batchnorm"),
        )
        model.fit(images, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert len(runs.reports[-1].variables) == 8


def test_train_on_batch_is_sharded_like_fit(strategy_of: StrategyOf) -> None:
    inputs, targets = examples(16)

    def train() -> list[keras.Variable]:
        model = compiled(strategy_of(2), optimizer=lambda: keras.optimizers.AdamW(0.01))
        for start in range(0, 16, 4):
            model.train_on_batch(inputs[start : start + 4], targets[start : start + 4])
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"


@pytest.mark.slow
def test_metrics_and_callbacks_see_the_same_numbers(strategy_of: StrategyOf) -> None:
    seen: list[list[Any]] = []

    class Watcher(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            slots = [v.numpy().tobytes() for v in self.model.optimizer.variables]
            seen[-1].append((batch, dict(logs), slots))

    def train() -> list[keras.Variable]:
        seen.append([])
        model = compiled(
            strategy_of(2),
            optimizer=lambda: keras.optimizers.Adam(0.05),
            metrics=[keras.metrics.MeanAbsoluteError(), keras.metrics.RootMeanSquaredError()],
        )
        history = _fit(
            model,
            epochs=3,
            validation_data=examples(8),
            callbacks=[
                Watcher(),
                keras.callbacks.ReduceLROnPlateau("loss", patience=0, factor=0.5, min_delta=9.0),
                keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True),
            ],
        )
        seen[-1].append(history.history)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert seen[0] == seen[1]
    assert len(seen[0]) > 4 and seen[0][-1]["learning_rate"][0] > seen[0][-1]["learning_rate"][-1]
    assert {report.verdict for report in runs.reports} == {"sharded"}


def test_sums_on_one_device_are_recognised(summing_strategy_of: StrategyOf) -> None:
    strategy = summing_strategy_of(2)

    def train() -> list[keras.Variable]:
        model = compiled(strategy, optimizer=lambda: keras.optimizers.AdamW(0.01))
        _fit(model)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert runs.reports[-1].verdict == "sharded"
    assert sum(in_shards(variable) for variable in runs.variables[4:]) == 8


def test_averaged_weights_of_the_optimizer_are_what_they_were(strategy_of: StrategyOf) -> None:
    def train() -> list[keras.Variable]:
        model = compiled(
            strategy_of(2),
            optimizer=lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5),
        )
        _fit(model)
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert [len(variable.slots) for variable in runs.reports[-1].variables] == [3] * 4

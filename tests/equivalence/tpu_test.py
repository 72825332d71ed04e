"""Under a TPUStrategy nothing but the place of weights and slots changes, whoever looks at them.

Two runs of this process need not be bit-identical: oneDNN fuses a matrix product with what follows
it where it sees a variable behind an operand, and rounds otherwise then. What two runs return is
compared within `ROUNDING`; tpu_optimizers_test.py compares bits, without oneDNN.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import (
    compiled,
    examples,
    in_shards,
    state,
    step_of,
    turn_off,
    turn_on,
)

StrategyOf = Callable[..., tf.distribute.TPUStrategy]

WIDTH, CLASSES = 24, 3
INPUTS, TARGETS = examples(64, WIDTH, CLASSES)

# Values are of the order of 1 and float32 has 2**-24 of that; some tens of steps through a net of
# three layers multiply a difference in the last bit by less than 100.
ROUNDING = 1e-5


@pytest.fixture
def four(emulated: StrategyOf) -> tf.distribute.TPUStrategy:
    """A strategy of four replicas in one group."""
    return emulated(4)


def net() -> keras.Model:
    """Two of its three kernels have rows for a tile of every shard of four."""
    layers = [keras.layers.Dense(units, activation="tanh") for units in (64, 40)]
    return keras.Sequential([keras.layers.Input((WIDTH,)), *layers, keras.layers.Dense(CLASSES)])


def fit(model: keras.Model, rows: int = 64, batch: int = 16, **keywords: Any) -> list[float]:
    given = {"batch_size": batch, "shuffle": False, "verbose": 0} | keywords
    losses: list[float] = model.fit(INPUTS[:rows], TARGETS[:rows], **given).history["loss"]
    return losses


def evaluated(model: keras.Model) -> float:
    return float(model.evaluate(INPUTS, TARGETS, batch_size=16, verbose=0))


def predicted(model: keras.Model) -> np.ndarray:
    found: np.ndarray = model.predict(INPUTS, batch_size=16, verbose=0)
    return found


def total_on_host(model: keras.Model) -> tf.Tensor:
    """A tf.function of no replica that reads a weight."""
    weight = model.weights[0].value
    return tf.function(lambda: tf.reduce_sum(weight) * 2)()


def values(model: keras.Model) -> list[np.ndarray]:
    return [np.array(variable.numpy()) for variable in state(model)]


def same_without_and_with(scenario: Callable[[], Any], **options: Any) -> None:
    """Asserts that a scenario returns the same numbers without and with the flag."""
    runs = []
    for on in (False, True):
        keras.utils.set_random_seed(7)
        tf_wu_shard.clear_reports()
        if on:
            turn_on(**options)
        runs.append([np.asarray(value) for value in tf.nest.flatten(scenario())])
        turn_off()
    assert len(runs[0]) == len(runs[1])
    for one, other in zip(*runs, strict=True):
        np.testing.assert_allclose(other, one, rtol=ROUNDING, atol=ROUNDING)


def reasons() -> dict[str, str]:
    """Of the last report, why each variable was left alone; by the end of its name."""
    return {
        "/".join(left.name.split("/")[-2:]): left.reason
        for left in tf_wu_shard.reports()[-1].left_alone
    }


def test_evaluate_predict_eager_code_and_host_functions_see_the_trained_weights(
    four: tf.distribute.TPUStrategy,
) -> None:
    def scenario() -> Any:
        model = compiled(four, net)
        losses = fit(model, epochs=2, validation_data=(INPUTS, TARGETS))
        seen = evaluated(model), predicted(model), total_on_host(model), model(INPUTS[:3])
        # A last batch that is not full is another trace of the step.
        return losses, seen, fit(model, rows=60), evaluated(model), values(model)

    same_without_and_with(scenario)


def test_checkpoints_files_and_exports_hold_whole_weights(
    four: tf.distribute.TPUStrategy, tmp_path: pathlib.Path
) -> None:
    def scenario() -> Any:
        model = compiled(four, net)
        fit(model)
        before = values(model)
        path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
        model.save(tmp_path / "model.keras")
        model.export(tmp_path / "exported", verbose=False)
        fit(model)
        tf.train.Checkpoint(model=model).restore(path)
        for one, other in zip(before, values(model), strict=True):
            np.testing.assert_array_equal(one, other)
        exported = tf.saved_model.load(str(tmp_path / "exported"))
        served = exported.serve(INPUTS)
        loaded = keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_allclose(loaded(INPUTS), served, rtol=ROUNDING, atol=ROUNDING)
        return before, served, fit(model), values(model)

    same_without_and_with(scenario)


def test_weights_set_and_slots_loaded_from_outside_are_trained_on(
    four: tf.distribute.TPUStrategy,
) -> None:
    def scenario() -> Any:
        model = compiled(four, net)
        start = model.get_weights()
        fit(model)
        model.set_weights([weight * 2 for weight in start])
        return fit(model), values(model)

    same_without_and_with(scenario)


def test_a_step_may_read_a_weight_after_its_update_and_on_the_host_around_it(
    four: tf.distribute.TPUStrategy,
) -> None:
    def scenario() -> Any:
        model = compiled(four, net, built=True)
        step = step_of(four, model).python_function
        weight = model.weights[0].value

        @tf.function
        def around() -> list[tf.Tensor]:
            before = tf.identity(weight)
            return [before, step(), tf.identity(weight)]

        return [around() for _ in range(3)], values(model)

    same_without_and_with(scenario)


def test_the_report_names_the_rows_and_what_was_left_alone(
    four: tf.distribute.TPUStrategy,
) -> None:
    turn_on()
    model = compiled(four, net)
    fit(model)
    (report,) = tf_wu_shard.reports()
    assert report.verdict == "partly sharded"
    assert [variable.layout for variable in report.variables] == [
        "rows 24x64/4 pad 512",
        "tiles 2560/4 pad 1536",
    ]
    assert [len(variable.slots) for variable in report.variables] == [2, 2]
    assert report.emitted == {"reduce_scatter": 2, "all_gather": 2}
    sizes = (64, 40, 40 * CLASSES, CLASSES)
    assert set(reasons().values()) == {
        f"its {size} elements do not fill a tile of every shard: those hold 4096" for size in sizes
    }
    assert ": 2 of 6 variables over 4 replicas" in str(report)
    assert "replicas: topology not known: one group of all replicas" in str(report).splitlines()
    # Four shards of 8 rows of the kernel 24x64, and four of 16 of 40x64: tiles have 8 rows.
    whole = 40 * 3 + 64 + 40 + 3
    assert report.weight_bytes_per_replica.unsharded == 4 * (24 * 64 + 64 * 40 + whole)
    assert report.weight_bytes_per_replica.sharded == 4 * (8 * 64 + 16 * 64 + whole)
    assert sum(in_shards(variable) for variable in state(model)) == 2 * 3


@pytest.mark.slow
def test_a_large_bias_lives_in_shards_too(four: tf.distribute.TPUStrategy) -> None:
    def build() -> keras.Model:
        layers = [keras.layers.Dense(units, activation="tanh") for units in (5000, CLASSES)]
        return keras.Sequential([keras.layers.Input((WIDTH,)), *layers])

    def scenario() -> Any:
        model = compiled(four, build)
        losses = fit(model)
        bias = model.weights[1].value
        return losses, tf.function(lambda: bias + 0)(), evaluated(model), fit(model), values(model)

    same_without_and_with(scenario, min_elements=None)
    found = {variable.shape: variable for variable in tf_wu_shard.reports()[0].variables}
    assert found[5000,].layout == "tiles 5000/4 pad 3192"
    assert found[WIDTH, 5000].bucket == found[5000,].bucket


def test_by_default_what_does_not_fill_a_tile_of_every_replica_stays_whole(
    four: tf.distribute.TPUStrategy,
) -> None:
    turn_on(min_elements=None)
    model = compiled(four, lambda: _wide(64))
    fit(model)
    (report,) = tf_wu_shard.reports()
    assert [variable.shape for variable in report.variables] == [(64, 64)]
    assert f"below min_elements={4 * 8 * 128}" in str(report)


def _wide(units: int) -> keras.Model:
    layers = [keras.layers.Dense(units) for _ in range(2)]
    return keras.Sequential([keras.layers.Input((WIDTH,)), *layers, keras.layers.Dense(CLASSES)])


def test_what_is_in_shards_stays_so_when_the_flag_is_turned_off(
    four: tf.distribute.TPUStrategy,
) -> None:
    turn_on()
    model = compiled(four, net)
    fit(model)
    turn_off()
    before = values(model)
    # Another batch size is another trace.
    fit(model, batch=32)
    assert in_shards(model.weights[0])
    assert (before[0] != model.weights[0].numpy()).any()


@pytest.mark.parametrize(
    "look",
    [evaluated, pytest.param(predicted, marks=pytest.mark.slow)],
    ids=["evaluate", "predict"],
)
def test_weights_that_were_evaluated_before_training_stay_whole_and_their_slots_do_not(
    four: tf.distribute.TPUStrategy, look: Callable[[keras.Model], Any]
) -> None:
    models = []

    def scenario() -> Any:
        models.append(compiled(four, net))
        model = models[-1]
        return look(model), fit(model), look(model), values(model)

    same_without_and_with(scenario)
    kernels = [v.value for v in models[-1].weights[::2]]
    assert not any(in_shards(kernel) for kernel in kernels)
    slots = [v for v in state(models[-1]) if v.shape == kernels[0].shape][1:]
    assert len(slots) == 2 and all(in_shards(slot) for slot in slots)
    notes = tf_wu_shard.reports()[-1].notes
    assert len(notes) == 2 and all("its slots in shards: it is captured by" in n for n in notes)


def test_weights_that_a_loop_inside_the_step_reads_are_handed_to_it(
    four: tf.distribute.TPUStrategy,
) -> None:
    def build() -> keras.Model:
        reshaped = [keras.layers.Input((WIDTH,)), keras.layers.Reshape((6, 4))]
        layers = [keras.layers.LSTM(24), keras.layers.Dense(64), keras.layers.Dense(CLASSES)]
        return keras.Sequential([*reshaped, *layers])

    def scenario() -> Any:
        model = compiled(four, build)
        return fit(model), predicted(model), values(model)

    same_without_and_with(scenario)
    report = tf_wu_shard.reports()[-1]
    names = [variable.name.rpartition("/")[2] for variable in report.variables]
    assert names == ["recurrent_kernel", "kernel"] and not report.notes


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [
        (lambda: keras.optimizers.Adam(gradient_accumulation_steps=2), 4),
        pytest.param(keras.optimizers.Lamb, 4, marks=pytest.mark.slow),
        pytest.param(keras.optimizers.Adafactor, 2, marks=pytest.mark.slow),
    ],
    ids=["accumulating in a branch", "norms of whole tensors", "means of rows and columns"],
)
def test_what_an_optimizer_does_beside_elementwise_arithmetic_is_sharded(
    four: tf.distribute.TPUStrategy,
    optimizer: Callable[[], keras.optimizers.Optimizer],
    slots: int,
) -> None:
    models = []

    def scenario() -> Any:
        models.append(compiled(four, net, optimizer))
        return fit(models[-1]), values(models[-1])

    same_without_and_with(scenario)
    found = [v.value for v in models[-1].optimizer.variables if in_shards(v.value)]
    assert len([v for v in found if len(v.shape) == 2]) == slots


def test_two_programs_in_one_function_are_not_sharded_but_read_what_is(
    four: tf.distribute.TPUStrategy,
) -> None:
    def scenario() -> Any:
        model = compiled(four, net, built=True)
        step = step_of(four, model)

        def replica() -> tf.Tensor:
            return tf.reduce_sum(model(INPUTS[:4]) ** 2)

        @tf.function
        def twice() -> tf.Tensor:
            first = four.reduce("SUM", four.run(replica), axis=None)
            # The host reads the weights as well.
            first += tf.reduce_sum(model.weights[0].value)
            return first + four.reduce("MEAN", four.run(replica), axis=None)

        return step(), twice(), step(), values(model)

    same_without_and_with(scenario)
    turn_on()
    model = compiled(four, net, built=True)
    train = step_of(four, model).python_function

    @tf.function
    def trained_twice() -> tf.Tensor:
        return train() + train()

    trained_twice()
    assert set(reasons().values()) == {
        "the function holds 2 TPU programs (call strategy.run once in each tf.function)"
    }
    assert not any(in_shards(variable) for variable in state(model))


def test_functions_loops_and_branches_inside_a_program_may_read_what_is_in_shards(
    four: tf.distribute.TPUStrategy,
) -> None:
    def scenario() -> Any:
        model = compiled(four, net, built=True)
        step_of(four, model)()
        rows = tf.constant(INPUTS[:4], tf.float32)

        @tf.function
        def in_function(given: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(model(given) ** 2)

        def in_loop() -> tf.Tensor:
            def body(number: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return number + 1, total + in_function(rows / tf.cast(number + 1, tf.float32))

            return tf.while_loop(lambda number, _: number < 3, body, (0, 0.0))[1]

        def in_branch() -> tf.Tensor:
            total = in_loop()
            return total + tf.cond(total > 0, lambda: in_function(-rows), lambda: total)

        @tf.function
        def run() -> Any:
            return four.reduce("SUM", four.run(in_branch), axis=None)

        @tf.function
        def run_function() -> Any:
            return four.reduce("SUM", four.run(tf.function(in_branch)), axis=None)

        return run(), run_function(), values(model)

    same_without_and_with(scenario)

"""Matrix functions: each matrix is updated by one replica, and trains as it does unsharded."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
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
    step_of,
    turn_off,
    turn_on,
)
from tests.equivalence.matrix_optimizers import ClippedMuon, Shampoo, root_by_newton
from tests.equivalence.reordered import Training, check_against_reordered
from tests.selection import cases
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

k = keras.optimizers


def scaled_muon() -> keras.optimizers.Optimizer:
    """Muon that skips steps: 1e38 times the loss overflows, and the scale is halved until not."""
    return k.LossScaleOptimizer(k.Muon(0.01), initial_scale=2.0**127, dynamic_growth_steps=3)


# Muon decays all weights, and applies Adam to whatever is no matrix.
OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "Muon": lambda: k.Muon(0.01),
    "Muon, clipped, averaged": lambda: k.Muon(0.01, clipnorm=0.5, use_ema=True),
    "Muon of scaled losses": scaled_muon,
    "Muon, clipped after": lambda: ClippedMuon(0.01),
    "Shampoo by eigenvalues": lambda: Shampoo(0.01),
    "Shampoo by Newton": lambda: Shampoo(0.01, root_by_newton),
}

# A norm of all gradients is a sum over shards of the biases' ones.
ROUNDED = {"Muon, clipped after"}


# What every run of the tests takes.
QUICK = ("Muon, clipped, averaged",)


@pytest.mark.parametrize("case", cases(OPTIMIZERS, QUICK))
def test_two_replicas_train_bit_for_bit_as_unsharded(strategy_of: StrategyOf, case: str) -> None:
    report = check_against_reordered(
        strategy_of(2), Training(OPTIMIZERS[case]), vectors=True, exact=case not in ROUNDED
    )
    owners = {v.layout for v in report.variables if len(v.shape) == 2}
    assert owners == {"owner replica 0", "owner replica 1"}


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [4, 8])
@pytest.mark.parametrize("case", ["Muon", "Shampoo by Newton"])
def test_more_replicas_are_as_near_as_another_order_of_sums(
    summing_strategy_of: StrategyOf, case: str, replicas: int
) -> None:
    training = Training(OPTIMIZERS[case])
    check_against_reordered(summing_strategy_of(replicas), training, vectors=True)


def held_by(variable: Any) -> list[int]:
    """The elements of a slot that each replica holds."""
    slot = sharded_slot_of(original_handle(variable.value.values[0]))
    assert slot is not None
    return [int(tf.size(shard.value())) for shard in slot.shards]


def test_the_owner_alone_holds_the_slots_and_the_report_says_so(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    turn_on()
    model = compiled(strategy, optimizer=lambda: k.Muon(0.01), built=True)
    step_of(strategy, model)()
    slots = {tuple(v.shape): held_by(v) for v in model.optimizer.variables if v.shape.rank == 2}
    assert slots == {(6, 7): [42, 0], (7, 3): [0, 21]}
    (report,) = tf_wu_shard.reports()
    assert "owner replica 0" in str(report) and report.left_alone == ()
    # 42 + 21 floats of the matrices' momentum, two slots of 7 + 3 floats of the biases.
    assert report.slot_bytes_per_replica.unsharded == 4 * (63 + 20)
    assert report.emitted["reduce"] == report.emitted["broadcast"] == 2


@pytest.fixture
def _sums_and_products_as_traced() -> Iterator[None]:
    """Keeps Grappler from reassociating products.

    In (x * a) * b it takes the constants together where nothing else reads them. Other weights of
    the same device may, as equal constants are made one; and a step in shards has fewer weights on
    each device. That may show in the last bit.
    """
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})


@pytest.mark.usefixtures("_sums_and_products_as_traced")
def test_a_loop_of_steps_and_a_second_trace_keep_the_owners(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)

    def train() -> list[Any]:
        model = compiled(strategy, optimizer=lambda: k.Muon(0.01), built=True)
        step = step_of(strategy, model)

        @tf.function
        def steps(count: tf.Tensor) -> None:
            for _ in tf.range(count):
                step()

        step()
        steps(tf.constant(3))
        # A function of its own that trains the second matrix alone: by its load it would go to
        # replica 0, but its momentum is with replica 1.
        model.layers[0].trainable = False
        inputs, targets = examples(4)

        @tf.function
        def last() -> None:
            def replica() -> None:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(inputs) - targets) ** 2)
                gradients = tape.gradient(loss, model.trainable_variables)
                model.optimizer.apply(gradients, model.trainable_variables)

            strategy.run(replica)

        last()
        return state(model)

    runs = both(train)
    assert runs.apart == []
    assert [r.verdict for r in runs.reports] == ["sharded"] * len(runs.reports)
    second = [v for r in runs.reports for v in r.variables if v.shape == (7, 3)]
    assert {v.layout for v in second} == {"owner replica 1"} and len(second) == 2


def test_a_checkpoint_goes_between_owners_and_unsharded_runs(
    strategy_of: StrategyOf, summing_strategy_of: StrategyOf, tmp_path: pathlib.Path
) -> None:
    def run(strategy: tf.distribute.Strategy, sharded: bool, seed: int) -> Any:
        keras.utils.set_random_seed(seed)
        (turn_on if sharded else turn_off)()
        model = compiled(strategy, optimizer=lambda: Shampoo(0.01), built=True)
        step = step_of(strategy, model)
        step()
        return model, step, tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    _, _, checkpoint = run(summing_strategy_of(4), True, 1)
    path = checkpoint.save(str(tmp_path / "four"))
    ends = []
    for sharded in (False, True):
        model, step, checkpoint = run(strategy_of(2), sharded, 2)
        checkpoint.restore(path).assert_consumed()
        for _ in range(3):
            step()
        ends.append([np.asarray(variable).tobytes() for variable in state(model)])
        assert any(in_shards(v) for v in model.optimizer.variables) == sharded
    assert ends[0] == ends[1]
    back = checkpoint.save(str(tmp_path / "two"))
    model, step, checkpoint = run(tf.distribute.get_strategy(), False, 3)
    checkpoint.restore(back).assert_consumed()
    assert [np.asarray(variable).tobytes() for variable in state(model)] == ends[1]


def test_functions_and_eager_code_use_an_owned_slot_as_ever(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)

    def train() -> list[Any]:
        model = compiled(strategy, optimizer=lambda: Shampoo(0.01), built=True)
        step = step_of(strategy, model)
        step()
        (side,) = [v.value for v in model.optimizer.variables if tuple(v.shape) == (7, 7)][:1]

        @tf.function
        def halve() -> tf.Tensor:
            strategy.run(lambda: side.assign(side * 0.5))
            return tf.reduce_sum(side)

        halve()
        side.assign_add(tf.eye(7))
        step()
        return state(model)

    assert both(train).apart == []


CAUSES = {
    "noise": "each replica runs a RandomStandardNormal of its own",
    "constants": "it differs from replica 0's",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_replicas_may_not_agree_about_is_left_alone(
    strategy_of: StrategyOf, cause: str
) -> None:
    numbers = itertools.count()

    class Restless(Shampoo):
        """Shampoo that adds what each replica has of its own."""

        def update_step(self, gradient: tf.Tensor, variable: Any, learning_rate: Any) -> None:
            own = tf.random.normal(()) if cause == "noise" else tf.constant(float(next(numbers)))
            super().update_step(gradient * (1.0 + own), variable, learning_rate)

    strategy = strategy_of(2)
    turn_on()
    model = compiled(strategy, dense_model, lambda: Restless(0.01), built=True)
    step_of(strategy, model)()
    (report,) = tf_wu_shard.reports()
    matrices = [left for left in report.left_alone if "kernel" in left.name]
    assert len(matrices) == 2
    for left in matrices:
        assert left.reason.startswith("no rule for MatMul; nor can one replica do it alone: ")
        assert CAUSES[cause] in left.reason

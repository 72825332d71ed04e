"""Updates that look at norms, and at means of rows and columns, train the same in shards.

The norms are sums over all shards, so they are summed in another order than unsharded ones, and
rounded otherwise. What that may change is measured: the unmodified baseline is trained again with
its hidden units in another order, which changes nothing but the order of its sums. A sharded run
may be four times as far away, or `FLOOR`, which is some roundings of float32 (6e-8 each) for each
of the 20 steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import StrategyOf, examples, in_shards, turn_off, turn_on
from tests.equivalence.matrix import relative_difference
from tests.equivalence.norm_optimizers import (
    AdamWeightDecay,
    ClippedAfter,
    ClippedLamb,
    Lamb,
    Lars,
    LoggedNorms,
    RowNorms,
)

FLOOR = 2e-6
ROWS, BATCH, EPOCHS = 64, 16, 5
WIDTH, HIDDEN, OUTPUTS = 24, 64, 40

k = keras.optimizers

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "Keras Lamb": lambda: k.Lamb(0.01, weight_decay=0.01),
    "Keras Adafactor": lambda: k.Adafactor(0.05),
    "LAMB": lambda: Lamb(0.01),
    "LARS": lambda: Lars(0.5),
    "global norm clipped": lambda: ClippedAfter("global", 0.01),
    "each norm clipped": lambda: ClippedAfter("each", 0.01),
    "LAMB of clipped": lambda: ClippedLamb(0.01),
    "norms of rows": lambda: RowNorms(0.05),
    "norms logged": lambda: LoggedNorms(0.01),
    "AdamWeightDecay": lambda: AdamWeightDecay(0.01),
}

# Nothing but gradients is summed in these, and at 2 replicas there is one order for that.
EXACT = {"norms logged", "AdamWeightDecay"}

CONSTRAINTS: dict[str, Callable[[], keras.constraints.Constraint]] = {
    "unit norm": lambda: keras.constraints.UnitNorm(axis=0),
    "largest norm": lambda: keras.constraints.MaxNorm(0.8, axis=1),
    "norms between": lambda: keras.constraints.MinMaxNorm(0.5, 0.9, rate=0.7, axis=0),
}

# What every run of the tests takes; one way through each rule and each dialect.
QUICK = {
    "process": ("Keras Adafactor", "LAMB of clipped", "AdamWeightDecay", "unit norm"),
    "tpu": ("Keras Adafactor", "LARS"),
}


def cases(ground: str) -> list[Any]:
    """All cases; those that are not quick are part of the full matrix only."""
    return [
        pytest.param(case, marks=() if case in QUICK[ground] else pytest.mark.slow)
        for case in (*OPTIMIZERS, *CONSTRAINTS)
    ]


def model_of(case: str, order: np.ndarray) -> keras.Model:
    """A net of two layers whose hidden units stand in `order`; only that depends on it."""
    constraint = CONSTRAINTS.get(case, lambda: None)
    dense = keras.layers.Dense
    model = keras.Sequential(
        [
            keras.layers.Input((WIDTH,)),
            dense(HIDDEN, activation="tanh", kernel_constraint=constraint()),
            dense(OUTPUTS, kernel_constraint=constraint()),
        ]
    )
    model.compile(OPTIMIZERS.get(case, lambda: k.Adam(0.01))(), keras.losses.MeanSquaredError())
    random = np.random.default_rng(2)
    first = random.standard_normal((WIDTH, HIDDEN)).astype(np.float32) * np.float32(0.2)
    second = random.standard_normal((HIDDEN, OUTPUTS)).astype(np.float32) * np.float32(0.1)
    bias = np.zeros(HIDDEN, np.float32)
    model.set_weights([first[:, order], bias, second[order], np.zeros(OUTPUTS, np.float32)])
    return model


def trained(
    strategy: tf.distribute.Strategy, case: str, order: np.ndarray | None = None
) -> tuple[list[np.ndarray], keras.Model]:
    """The weights after 20 steps, hidden units in their first order, and the model."""
    keras.utils.set_random_seed(4)
    own = np.arange(HIDDEN) if order is None else order
    with strategy.scope():
        model = model_of(case, own)
    inputs, targets = examples(ROWS, WIDTH, OUTPUTS)
    model.fit(inputs, targets, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    back = np.argsort(own)
    first, bias, second, last = model.get_weights()
    return [first[:, back], bias[back], second[back], last], model


def farthest(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    return max(relative_difference(a, b) for a, b in zip(one, other, strict=True))


def check(
    strategy: tf.distribute.Strategy, case: str, *, vectors: bool, exact: bool = False
) -> None:
    """Trains unsharded, reordered and sharded, compares, and looks at what was sharded."""
    turn_off()
    unsharded, _ = trained(strategy, case)
    reordered, _ = trained(strategy, case, np.random.default_rng(9).permutation(HIDDEN))
    tf_wu_shard.clear_reports()
    turn_on(on_refusal="raise")
    sharded, model = trained(strategy, case)
    turn_off()
    moved, apart = farthest(unsharded, reordered), farthest(unsharded, sharded)
    print(f"{case}: reordered {moved:.2e}, sharded {apart:.2e}")
    assert apart <= (0 if exact else max(FLOOR, 4 * moved))
    (report,) = tf_wu_shard.reports()
    assert len(report.variables) == (4 if vectors else 2)
    shapes = {(WIDTH, HIDDEN), (HIDDEN, OUTPUTS)}
    slots = [v for v in model.optimizer.variables if tuple(v.shape) in shapes]
    assert [v.path for v in slots if not in_shards(v)] == []


@pytest.mark.parametrize("case", cases("process"))
def test_in_two_replicas_of_a_process(strategy_of: StrategyOf, case: str) -> None:
    check(strategy_of(2), case, vectors=True, exact=case in EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*OPTIMIZERS, *CONSTRAINTS])
def test_in_four_replicas_of_a_process(summing_strategy_of: StrategyOf, case: str) -> None:
    check(summing_strategy_of(4), case, vectors=True)


@pytest.mark.parametrize("case", cases("tpu"))
def test_in_four_replicas_of_a_tpu(emulated: StrategyOf, case: str) -> None:
    check(emulated(4), case, vectors=False)

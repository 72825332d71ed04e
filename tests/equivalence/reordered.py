"""Holds a sharded training against an unsharded one by what the order of sums moves the latter.

Where the sharded update sums in another order than the unsharded one, it is rounded otherwise. What
that may change is measured: the unmodified baseline is trained again with its hidden units in
another order, which changes nothing but the order of its sums. A sharded run may be four times as
far away, or `FLOOR`, which is some roundings of float32 (6e-8 each) for each of the 20 steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import examples, in_shards, turn_off, turn_on
from tests.equivalence.matrix import relative_difference

FLOOR = 2e-6
ROWS, BATCH, EPOCHS = 64, 16, 5
WIDTH, HIDDEN, OUTPUTS = 24, 64, 40


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained.

    Attributes:
        optimizer: Makes the optimizer.
        constraint: Makes the constraint of the kernels.
    """

    optimizer: Callable[[], keras.optimizers.Optimizer]
    constraint: Callable[[], keras.constraints.Constraint | None] = lambda: None


def model_of(training: Training, order: np.ndarray) -> keras.Model:
    """A net of two layers whose hidden units stand in `order`; only that depends on it."""
    dense = keras.layers.Dense
    model = keras.Sequential(
        [
            keras.layers.Input((WIDTH,)),
            dense(HIDDEN, activation="tanh", kernel_constraint=training.constraint()),
            dense(OUTPUTS, kernel_constraint=training.constraint()),
        ]
    )
    model.compile(training.optimizer(), keras.losses.MeanSquaredError())
    random = np.random.default_rng(2)
    first = random.standard_normal((WIDTH, HIDDEN)).astype(np.float32) * np.float32(0.2)
    second = random.standard_normal((HIDDEN, OUTPUTS)).astype(np.float32) * np.float32(0.1)
    bias = np.zeros(HIDDEN, np.float32)
    model.set_weights([first[:, order], bias, second[order], np.zeros(OUTPUTS, np.float32)])
    return model


def trained(
    strategy: tf.distribute.Strategy, training: Training, order: np.ndarray | None = None
) -> tuple[list[np.ndarray], keras.Model]:
    """The weights after 20 steps, hidden units in their first order, and the model."""
    keras.utils.set_random_seed(4)
    own = np.arange(HIDDEN) if order is None else order
    with strategy.scope():
        model = model_of(training, own)
    inputs, targets = examples(ROWS, WIDTH, OUTPUTS)
    model.fit(inputs, targets, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    back = np.argsort(own)
    first, bias, second, last = model.get_weights()
    return [first[:, back], bias[back], second[back], last], model


def farthest(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    """The difference of the tensors that differ most, relative to their largest element."""
    return max(relative_difference(a, b) for a, b in zip(one, other, strict=True))


def check_against_reordered(
    strategy: tf.distribute.Strategy, training: Training, *, vectors: bool, exact: bool = False
) -> Any:
    """Trains unsharded, reordered and sharded, compares, and looks at what was sharded.

    Args:
        strategy: Where to train.
        training: What.
        vectors: Whether the biases must be sharded too.
        exact: Whether no bit may differ.

    Returns:
        The report of the sharded run.
    """
    turn_off()
    unsharded, _ = trained(strategy, training)
    reordered, _ = trained(strategy, training, np.random.default_rng(9).permutation(HIDDEN))
    tf_wu_shard.clear_reports()
    turn_on(on_refusal="raise")
    sharded, model = trained(strategy, training)
    turn_off()
    moved, apart = farthest(unsharded, reordered), farthest(unsharded, sharded)
    print(f"reordered {moved:.2e}, sharded {apart:.2e}")
    assert apart <= (0 if exact else max(FLOOR, 4 * moved))
    (report,) = tf_wu_shard.reports()
    assert len(report.variables) == (4 if vectors else 2)
    shapes = {(WIDTH, HIDDEN), (HIDDEN, OUTPUTS)}
    slots = [v for v in model.optimizer.variables if tuple(v.shape) in shapes]
    assert [v.path for v in slots if not in_shards(v)] == []
    return report

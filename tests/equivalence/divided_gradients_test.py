"""Updates that divide a sparse gradient by a table, or sum over its rows, train the same in shards.

Keras divides in two ways: where the table has no zero and no NaN the rows that were looked up are
divided, else rows are added to the gradient for those that are, by a program that looks at all
entries at once. The second is what most of these tests are about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.embedding import per_replica, train_embedding
from tests.equivalence.in_process import StrategyOf, both, in_shards, turn_off, turn_on
from tests.equivalence.norm_optimizers import Lars, RowNorms, WithSlots, tensor_of
from tests.selection import cases

k = keras.optimizers
Optimizer = Callable[[], keras.optimizers.Optimizer]
Ids = Sequence[Sequence[int]]

_ROWS, _WIDTH = 9, 16


class ByCondition(WithSlots):
    """Momentum that doubles steep gradients, by a condition both sides of which are row by row."""

    slot_names = ("momentum",)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        weight, momentum = tensor_of(variable), self.slot("momentum", variable)
        steep = tf.reduce_any(tf.abs(momentum) > 0.2)
        values = tf.cond(steep, lambda: gradient.values * 0.5, lambda: gradient.values + 0.0)
        slices = tf.IndexedSlices(values, gradient.indices)
        momentum.scatter_add(slices)
        weight.assign_sub(learning_rate * momentum)


class LargestEntry(WithSlots):
    """Momentum of a gradient by the largest of all its entries' elements."""

    slot_names = ("momentum",)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        momentum = self.slot("momentum", variable)
        largest = tf.reduce_max(tf.abs(gradient.values))
        columns = tf.ensure_shape(tf.reduce_min(gradient.values, 0), variable.shape[1:])
        scaled = (gradient.values - 0.1 * columns) / (largest + 0.5)
        momentum.scatter_sub(tf.IndexedSlices(scaled, gradient.indices))
        tensor_of(variable).assign_add(learning_rate * momentum)


def _table_after(strategy: Any, optimizer: Optimizer, steps: Sequence[Ids]) -> list[Any]:
    """A table, and the slots, after steps in which each replica looks some ids up."""
    with strategy.scope():
        table = keras.layers.Embedding(_ROWS, _WIDTH)
        table.build()
        chosen = optimizer()
        chosen.build(table.trainable_variables)

    def step(ids: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((table(ids) + tf.cast(ids[:, None], tf.float32)) ** 2)
        gradients = tape.gradient(loss, table.trainable_variables)
        chosen.apply_gradients(zip(gradients, table.trainable_variables, strict=True))

    train_step = tf.function(lambda ids: strategy.run(step, (ids,)), reduce_retracing=True)
    for ids in steps:
        train_step(per_replica(strategy, [np.array(own, np.int32) for own in ids]))
    slots = [v.value for v in chosen.variables if v.shape.rank]
    return [table.trainable_variables[0].value, *slots]


def _check(train: Callable[[], list[Any]]) -> list[np.ndarray]:
    """Both runs end alike, bit for bit, and all slots are in shards; the values they end with."""
    runs = both(train)
    assert runs.apart == []
    assert all(in_shards(slot) for slot in runs.variables[1:]), str(runs.reports[-1])
    return runs.sharded


def _adagrad() -> keras.optimizers.Optimizer:
    return k.Adagrad(0.1, initial_accumulator_value=0.0, epsilon=0.0)


def test_rows_that_were_never_looked_up_are_divided_by_zero(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    # No repeated id; in one step a replica looks nothing up.
    steps = (((5, 0), (3,)), ((), (7,)), ((8, 2, 1), (6, 5)))
    table, slot = _check(lambda: _table_after(strategy, _adagrad, steps))
    assert np.isnan(table[4]).all() and not slot[4].any()


@pytest.mark.parametrize(
    "ids",
    [
        # An id that a replica, or two, look up twice: Keras takes other entries for theirs.
        pytest.param(((2, 2, 1), (8, 4)), id="one"),
        pytest.param(((1, 7), (1, 8, 3)), id="two"),
        # As many entries as rows: it takes them in their order for the rows in theirs.
        pytest.param(((8, 7, 6, 5, 4), (3, 2, 1, 0)), id="all"),
    ],
)
def test_entries_are_added_in_the_order_of_all(strategy_of: StrategyOf, ids: Ids) -> None:
    strategy = strategy_of(2)
    table, _ = _check(lambda: _table_after(strategy, _adagrad, (ids,)))
    assert np.isfinite(table).any()


def test_what_fails_unsharded_fails_in_shards(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    # Keras adds the places of repeated entries up, which is beyond the last of these.
    steps = (((0, 1, 2), (2, 3, 2)),)
    for turn in (turn_off, turn_on):
        turn()
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
            _table_after(strategy, _adagrad, steps)


OPTIMIZERS: dict[str, Optimizer] = {
    "adagrad": lambda: k.Adagrad(0.1),
    "rmsprop": lambda: k.RMSprop(0.01),
    "centered rmsprop": lambda: k.RMSprop(0.01, centered=True, momentum=0.5),
    "adadelta": lambda: k.Adadelta(0.1),
    "schedule free": lambda: k.ScheduleFreeAdamW(0.01),
    "loss scale": lambda: k.LossScaleOptimizer(k.Adagrad(0.1), initial_scale=8.0),
    "condition": lambda: ByCondition(0.1),
    "largest entry": lambda: LargestEntry(0.1),
}

QUICK = ("centered rmsprop", "loss scale", "condition", "largest entry")


@pytest.mark.parametrize(
    "optimizer",
    cases(OPTIMIZERS, QUICK),
)
def test_no_bit_differs(strategy_of: StrategyOf, optimizer: str) -> None:
    strategy = strategy_of(2)
    steps = (((5, 0, 5), (3, 0)), ((), (7,)), ((8, 2, 1), (6, 5)))
    _check(lambda: _table_after(strategy, OPTIMIZERS[optimizer], steps))


@pytest.mark.slow
def test_four_replicas_divide_as_one(summing_strategy_of: StrategyOf) -> None:
    strategy = summing_strategy_of(4)
    steps: list[Ids] = [((5,), (0, 3), (), (8, 7)), ((1,), (2,), (4,), (6,))]
    _check(lambda: _table_after(strategy, _adagrad, steps))
    # Nobody looks anything up in one step; TensorFlow's collectives crash on that, this does not.
    steps.insert(1, ((), (), (), ()))
    _check(lambda: _table_after(strategy, OPTIMIZERS["adagrad"], steps))


# Sums over rows are rounded otherwise in shards than in one go; what they scale is of order 1.
_ROUNDING = 1e-6


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(lambda: k.Adafactor(0.05), id="adafactor"),
        pytest.param(lambda: k.Lamb(0.01), id="lamb", marks=pytest.mark.slow),
        pytest.param(lambda: Lars(0.5), id="lars", marks=pytest.mark.slow),
        pytest.param(lambda: RowNorms(0.05), id="norms of rows", marks=pytest.mark.slow),
    ],
)
def test_sums_over_rows_and_entries(strategy_of: StrategyOf, optimizer: Optimizer) -> None:
    strategy = strategy_of(2)
    runs = both(lambda: train_embedding(strategy, optimizer))
    for one, other in zip(runs.unsharded, runs.sharded, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=_ROUNDING * np.abs(one).max())
    names = [v.name for v in runs.reports[-1].variables]
    assert any("embedding" in name for name in names)
    table = runs.variables[0].shape
    assert all(in_shards(v) for v in runs.variables[3:] if v.shape == table)

"""Sparse gradients that are late: lists of rows, of which none is lost and none comes twice."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import ShardingOptions, WuShardError
from tf_wu_shard.partial_sums.options import FLAG

ROWS, WIDTH, BATCH, STEPS = 64, 32, 5, 12
RATE = MOMENTUM = 0.5


class Table:
    """A table of which each replica's gradient is what its batch says of the rows that it names."""

    def __init__(self, strategy: Any, *, open_size: bool = True) -> None:
        self._strategy = strategy
        with strategy.scope():
            self.table = tf.Variable(tf.zeros((ROWS, WIDTH)), name="table")
            self.positions = tf.Variable(tf.zeros((BATCH, WIDTH)), name="positions")
            self.optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
            self.optimizer.build([self.table, self.positions])
        self._open_size = open_size
        self._step = tf.function(self._all_replicas, autograph=False)

    def _all_replicas(self, batches: Any) -> None:
        self._strategy.run(self._replica, next(batches))

    def _replica(self, rows: tf.Tensor, values: tf.Tensor) -> None:
        weights = [self.table, self.positions]
        with tf.GradientTape() as tape:
            looked_up = tf.nn.embedding_lookup(self.table, rows)
            # The same rows in every step.
            places = tf.nn.embedding_lookup(self.positions, tf.range(BATCH))
            loss = tf.reduce_sum(looked_up * values) + tf.reduce_sum(places * values[:BATCH])
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    def fit(self, rows: np.ndarray, values: np.ndarray, late: np.ndarray) -> None:
        """Takes a step for each [replicas, BATCH] of rows."""
        codes = np.repeat(late[..., None], BATCH, axis=-1)
        flat = [one.reshape(-1, *one.shape[3:]) for one in (rows, values, codes)]
        data = tf.data.Dataset.from_tensor_slices(tuple(flat))
        data = data.batch(BATCH * late.shape[1], drop_remainder=not self._open_size)
        marked = data.map(lambda r, v, c: tf_wu_shard.with_lateness((r, v), c))
        batches = iter(self._strategy.experimental_distribute_dataset(marked))
        for _ in late:
            self._step(batches)


def given(replicas: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, what is said of them, and how late that is; small integers, whose sums are exact."""
    random = np.random.default_rng(8)
    rows = random.integers(0, ROWS, (STEPS, replicas, BATCH)).astype(np.int32)
    values = random.integers(-9, 9, (STEPS, replicas, BATCH, WIDTH)).astype(np.float32)
    return rows, values, random.integers(0, 4, (STEPS, replicas)).astype(np.int32)


def by_numpy(
    rows: np.ndarray, values: np.ndarray, late: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both tables after training by momentum; powers of two, so that nothing is rounded."""
    shapes = (ROWS, WIDTH), (BATCH, WIDTH)
    weights = [np.zeros(shape) for shape in shapes]
    momenta = [np.zeros(shape) for shape in shapes]
    waiting = [[np.zeros(shape) for shape in shapes] for _ in range(late.shape[1])]
    for step in range(STEPS):
        sums = [np.zeros(shape) for shape in shapes]
        for replica, code in enumerate(late[step]):
            own = waiting[replica]
            if not code & 2:
                np.add.at(own[0], rows[step, replica], values[step, replica])
                own[1] += values[step, replica]
            if not code & 1:
                sums = [total + one for total, one in zip(sums, own, strict=True)]
                waiting[replica] = [np.zeros(shape) for shape in shapes]
        for weight, momentum, total in zip(weights, momenta, sums, strict=True):
            momentum *= MOMENTUM
            momentum -= RATE * total
            weight += momentum
    return weights[0], weights[1]


@pytest.mark.parametrize("sharded", [False, True])
def test_random_lateness_is_as_in_numpy(strategy: Any, sharded: bool) -> None:
    sharding = ShardingOptions(min_elements=1, on_refusal="raise") if sharded else False
    tf.config.optimizer.set_experimental_options({FLAG: True, "weight_update_sharding": sharding})
    trained, (rows, values, late) = Table(strategy), given(2)
    trained.fit(rows, values, late)
    table, positions = by_numpy(rows, values, late)
    np.testing.assert_array_equal(trained.table.numpy(), table)
    np.testing.assert_array_equal(trained.positions.numpy(), positions)
    (report,) = tf_wu_shard.reports()
    assert "2 gradients may be late" in report.changes[FLAG]
    assert bool(report.variables) == sharded


def test_as_many_rows_in_every_step_cannot_be_left_out(strategy_of: Any) -> None:
    tf.config.optimizer.set_experimental_options({FLAG: True})
    trained = Table(strategy_of(2), open_size=False)
    with pytest.raises(WuShardError, match=r"gradient of .*table.* has as many rows in every step"):
        trained.fit(*given(2))

"""A table of which each replica looks up rows, in steps for which replicas are late."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard

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

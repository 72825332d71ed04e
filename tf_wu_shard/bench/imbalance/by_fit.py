"""Digits, trained by `fit` with what most models have: statistics of batches, and a metric.

By tf_keras, whose fit runs on workers; that of Keras 3.15 does not, with the flag or without.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

Times = tuple[float, float, float]


class _Late(tf_keras.callbacks.Callback):
    """Lets a worker be late for its steps, and notes what they take; the first one traces."""

    def __init__(self, delays: Sequence[float]) -> None:
        super().__init__()
        self._delays = [0.0, *delays]
        self._begun = self._ready = 0.0
        self.losses: list[float] = []
        self.times: list[Times] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Called before a step."""
        self._begun = time.monotonic()
        time.sleep(self._delays[batch])
        self._ready = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called after it."""
        self.losses.append(float(logs["loss"]))
        self.times.append((self._begun, self._ready, time.monotonic()))


def train_by_fit(
    strategy: tf.distribute.Strategy,
    optimizer: Any,
    batches: Sequence[tuple[np.ndarray, np.ndarray]],
    delays: Sequence[float],
) -> tuple[Any, list[float], list[Times]]:
    """Trains one epoch.

    Args:
        strategy: A MultiWorkerMirroredStrategy.
        optimizer: One of tf_keras.
        batches: Of this worker, one more than delays.
        delays: By how many seconds this worker is late for each step but the first.

    Returns:
        The model; and of each step but the first its loss, over the number of workers, and when it
        began, when its batch was there, and when it ended.
    """
    (examples, _), total = batches[0], strategy.num_replicas_in_sync
    layers = tf_keras.layers
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.Input(examples.shape[1:]),
                *(layers.Conv2D(8, 3, use_bias=False), layers.BatchNormalization(), layers.ReLU()),
                *(layers.Conv2D(16, 3, use_bias=False), layers.BatchNormalization(), layers.ReLU()),
                *(layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)),
            ]
        )
        loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
    joined = [np.concatenate(parts) for parts in zip(*batches, strict=True)]
    data = tf.data.Dataset.from_tensor_slices(tuple(joined)).batch(len(examples))
    late = _Late(delays)
    dealt = strategy.distribute_datasets_from_function(lambda context: data)
    model.fit(dealt, steps_per_epoch=len(batches), verbose=0, callbacks=[late])
    # Keras shows the mean of all steps so far.
    sums = np.arange(1, 1 + len(late.losses)) * late.losses
    return model, (np.diff(sums) / total).tolist(), late.times[1:]

"""Fits, evaluates and predicts with Keras 3 and prints all of it as one line of JSON.

    python -m tests.workers.keras_run mirrored            on two replicas of this process
    TF_CONFIG=... python -m tests.workers.keras_run workers [BUILD] [METRICS]
    TF_CONFIG=... python -m tests.workers.keras_run sharded [BUILD] [METRICS]

On workers, the named bugs of Keras are repaired.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.strategies import mirrored_strategy
from tests.workers.keras_on_workers import Bug, keras_on_workers

# The last batch of 22 examples is smaller, that of 17 leaves nothing for the second replica.
_TRAINED, _VALIDATED, _BATCH, _EPOCHS = 22, 17, 8, 2


class _Batches(keras.callbacks.Callback):
    """Notes what Keras says after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[dict[str, float]] = []

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.logs.append({name: float(value) for name, value in (logs or {}).items()})


def train(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Trains a model that is not built yet from arrays, and what came of it.

    Returns:
        The bytes of the weights and slots, and of the predictions, in hexadecimal digits; the
        losses and metrics of each batch, of each epoch (with those of its validation), and of an
        evaluation.
    """
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(5)
    inputs = random.standard_normal((_TRAINED, 6), dtype=np.float32)
    targets = random.standard_normal((_TRAINED, 3), dtype=np.float32)
    validation = inputs[:_VALIDATED], targets[:_VALIDATED]
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(7, "tanh"), keras.layers.Dense(3)])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    batches = _Batches()
    history = model.fit(
        inputs,
        targets,
        batch_size=_BATCH,
        epochs=_EPOCHS,
        verbose=0,
        callbacks=[batches],
        validation_data=validation,
    )
    evaluation = model.evaluate(*validation, batch_size=_BATCH, verbose=0)
    predictions = model.predict(inputs, batch_size=_BATCH, verbose=0)
    variables = [*model.weights, *model.optimizer.variables]
    return {
        "variables": [variable.numpy().tobytes().hex() for variable in variables],
        "batches": batches.logs,
        "epochs": {name: [float(v) for v in each] for name, each in history.history.items()},
        "evaluation": evaluation,
        "predictions": [list(predictions.shape), predictions.tobytes().hex()],
        "verdicts": [report.verdict for report in tf_wu_shard.reports()],
    }


def main(where: str, bugs: Sequence[str]) -> None:
    """Trains on a strategy and prints."""
    # Keras leaves its own frames out of a traceback; a failure is to show where in Keras it is.
    keras.config.disable_traceback_filtering()
    if where == "mirrored":
        strategy = mirrored_strategy()
    else:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if where == "sharded":
        every_size = tf_wu_shard.ShardingOptions(min_elements=1)
        tf.config.optimizer.set_experimental_options({"weight_update_sharding": every_size})
    with keras_on_workers([Bug[name] for name in bugs]):
        print(json.dumps(train(strategy)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

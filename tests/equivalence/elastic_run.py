"""Trains some steps from the last checkpoint of a folder, and saves; see `elastic_test`.

    TF_CONFIG=... python -m tests.equivalence.elastic_run FOLDER

Without TF_CONFIG it trains on one replica. It prints what it restored and what it saved.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

import tf_wu_shard
from tests.equivalence.in_process import turn_on
from tests.equivalence.net import INPUTS, OUTPUTS, TARGETS, WIDTH

# What 1, 2, 3, 4 and 8 replicas can share.
EXAMPLES = np.repeat(INPUTS, 3, axis=0), np.repeat(TARGETS, 3, axis=0)


def main(folder: str) -> None:
    """Trains, and prints the values as one line of JSON."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    turn_on()
    tf_keras.utils.set_random_seed(11)
    model = compiled_model(strategy)
    kept = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(kept, _own(folder, strategy), max_to_keep=None)
    last = tf.train.latest_checkpoint(folder)
    if last is not None:
        kept.restore(last).assert_consumed()
    data = batches().repeat(2)
    state = [*model.weights, *model.optimizer.variables]
    restored = digests(state)
    model.fit(data, verbose=0)
    if last is not None:
        # Into slots that live in shards by now.
        kept.restore(last).assert_consumed()
    again = digests(state)
    model.fit(data, verbose=0)
    trained = digests(state)
    manager.save()
    verdicts = sorted({report.verdict for report in tf_wu_shard.reports()})
    print(
        json.dumps({"restored": restored, "again": again, "trained": trained, "verdicts": verdicts})
    )


def compiled_model(strategy: tf.distribute.Strategy) -> tf_keras.Model:
    """A model whose optimizer has its slots."""
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Dense(64, "tanh", input_shape=(WIDTH,)),
                tf_keras.layers.Dense(OUTPUTS),
            ]
        )
        model.compile(tf_keras.optimizers.Adam(0.01), "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def batches() -> tf.data.Dataset:
    """The examples in global batches, of which each worker takes its part."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices(EXAMPLES).batch(24).with_options(options)


def _own(folder: str, strategy: tf.distribute.Strategy) -> str:
    """Where a worker saves: the chief where it counts, the others beside it."""
    number = strategy.cluster_resolver.task_id if strategy.num_replicas_in_sync > 1 else 0
    return folder if number == 0 else str(pathlib.Path(folder) / f"workertemp_{number}")


def digests(variables: list[Any]) -> list[str]:
    """Of each value, what differs if a bit of it does."""
    values = [np.ascontiguousarray(variable.numpy()) for variable in variables]
    return [hashlib.sha256(value.tobytes()).hexdigest()[:16] for value in values]


if __name__ == "__main__":
    main(sys.argv[1])

"""Trains as a worker and saves, or evaluates beside the workers what they saved.

    TF_CONFIG=... python -m tests.equivalence.evaluator_run FOLDER on | off

The evaluator waits for the checkpoints, as tf_keras's own SidecarEvaluator does, under a strategy
of its own. A chief, where the cluster has one, is one of the workers.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

import tf_wu_shard
from tests.equivalence.in_process import turn_on
from tests.equivalence.net import INPUTS, OUTPUTS, TARGETS, WIDTH
from tests.equivalence.scenarios_run import digest

EPOCHS = 2


def model_of(strategy: tf.distribute.Strategy) -> Any:
    """A compiled model whose optimizer has its slots."""
    tf_keras.utils.set_random_seed(11)
    with strategy.scope():
        layers = [tf_keras.layers.Dense(64, "tanh", input_shape=(WIDTH,))]
        model = tf_keras.Sequential([*layers, tf_keras.layers.Dense(OUTPUTS)])
        model.compile(tf_keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        model.optimizer.build(model.trainable_variables)
    return model


def data(batch: int) -> tf.data.Dataset:
    """The examples, which workers share out among them."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    rows = np.asarray(INPUTS), np.asarray(TARGETS)
    return tf.data.Dataset.from_tensor_slices(rows).batch(batch).with_options(options)


def state(model: Any) -> str:
    """A digest of weights and slots."""
    return digest([v.numpy() for v in (*model.weights, *model.optimizer.variables)])


def train(strategy: tf.distribute.Strategy, folder: str, is_saving: bool) -> dict[str, Any]:
    """Trains and saves after each epoch; every worker takes part, and one saves where it counts."""
    model = model_of(strategy)
    kept = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    place = folder if is_saving else str(pathlib.Path(folder) / f"beside_{os.getpid()}")
    manager = tf.train.CheckpointManager(kept, place, max_to_keep=None, checkpoint_name="ckpt")
    for _ in range(EPOCHS):
        model.fit(data(8), verbose=0)
        manager.save()
    return {"state": state(model), "predicted": digest([model(INPUTS).numpy()])}


def evaluate(strategy: tf.distribute.Strategy, folder: str) -> dict[str, Any]:
    """Evaluates each checkpoint, the last one again by hand, and at last trains a step."""
    model = model_of(strategy)
    seen: list[Any] = []

    class Seen(tf_keras.callbacks.Callback):
        def on_test_end(self, logs: Any = None) -> None:
            seen.append({name: float(value) for name, value in logs.items()})

    sidecar = tf_keras.utils.SidecarEvaluator(
        model, data(8), folder, max_evaluations=EPOCHS, callbacks=[Seen()]
    )
    sidecar.start()
    kept = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    kept.restore(tf.train.latest_checkpoint(folder)).assert_consumed()
    by_hand = model.evaluate(data(8), verbose=0, return_dict=True)
    found: dict[str, Any] = {"state": state(model), "predicted": digest([model(INPUTS).numpy()])}
    reports = [str(report) for report in tf_wu_shard.reports()]
    model.fit(data(16), verbose=0)
    trained = sorted({left.reason for r in tf_wu_shard.reports() for left in r.left_alone})
    found |= {"seen": seen, "by_hand": by_hand, "reports": reports, "trained": trained}
    return found


def main(folder: str, flag: str) -> None:
    """Prints, as one line of JSON, what came of it."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    if flag == "on":
        turn_on()
    resolver = strategy.cluster_resolver
    if resolver.task_type == "evaluator":
        found = evaluate(strategy, folder)
    else:
        has_chief = bool(resolver.cluster_spec().as_dict().get("chief"))
        is_chief = resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)
        found = train(strategy, folder, is_chief)
        found["verdicts"] = sorted({report.verdict for report in tf_wu_shard.reports()})
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

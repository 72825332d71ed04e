"""Trains under an emulated TPUStrategy without and with the flag, in a process of its own.

    TF_ENABLE_ONEDNN_OPTS=0 python -m tests.equivalence.tpu_run '{"replicas": ..., ...}'

oneDNN's kernels fuse a matrix product with what follows it where they see a variable behind an
operand, and round otherwise then. A process that starts without them gives the same bits for the
same sums in the same order, so that any other difference is a mistake.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import examples, in_shards, turn_off, turn_on
from tests.equivalence.optimizers import RECIPES
from tf_wu_shard.emulation import emulated_tpu_strategy

STEPS = 6
# Rows of each replica.
BATCH = 4


def main(job: dict[str, Any]) -> None:
    """Prints, as one line of JSON, what came of each optimizer of the job."""
    strategy = emulated_tpu_strategy(job["replicas"], job["topology"])
    found = {name: compared(strategy, name) for name in job["optimizers"]}
    print(json.dumps(found))


def compared(strategy: tf.distribute.TPUStrategy, name: str) -> dict[str, Any]:
    """Trains twice with one optimizer.

    Returns:
        `apart`: how far each weight and slot differs, relative to its largest element; `moved`:
        how far the weights went; `in_shards`: how many of the weights and slots live so; `whole`:
        matrices that do not; `emitted`: the collectives of the report.
    """
    turn_off()
    unsharded, before = _trained(strategy, name)
    tf_wu_shard.clear_reports()
    turn_on()
    sharded, _ = _trained(strategy, name)
    turn_off()
    reports = tf_wu_shard.reports()
    one, other = ([np.array(v.numpy()) for v in run] for run in (unsharded, sharded))
    matrices = [v for v in sharded if len(v.shape) == 2]
    return {
        "apart": [_apart(a, b) for a, b in zip(one, other, strict=True)],
        "moved": min(float(np.abs(a - b).max()) for a, b in zip(one, before, strict=False)),
        "in_shards": sum(in_shards(v) for v in sharded),
        "whole": [v.name for v in matrices if not in_shards(v)],
        "emitted": reports[-1].emitted if reports else {},
    }


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    if one.tobytes() == other.tobytes():
        return 0.0
    return float(np.abs(one - other).max() / np.abs(one).max())


def _trained(strategy: tf.distribute.TPUStrategy, name: str) -> tuple[list[Any], list[np.ndarray]]:
    """The weights and slots after training, and the weights before it."""
    keras.utils.set_random_seed(11)
    recipe = RECIPES[name]
    with strategy.scope():
        model = _model()
        if recipe.fused:
            counter = tf.Variable(0, dtype=tf.int64, trainable=False)
            optimizer = recipe.make(counter)
        else:
            counter = None
            optimizer = recipe.make()
            optimizer.build(model.trainable_variables)
    weights = [variable.value for variable in model.trainable_variables]
    before = [np.array(weight.numpy()) for weight in weights]
    inputs, targets = examples(BATCH * strategy.num_replicas_in_sync, 24, 40)

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(rows) - wanted) ** 2)
        gradients = tape.gradient(loss, weights)
        if counter is None:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        else:
            optimizer.apply_gradients(zip(gradients, weights, strict=True), global_step=counter)
        return loss

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        return strategy.run(replica, (rows, wanted))

    def spread(array: np.ndarray) -> Any:
        own = np.split(array, strategy.num_replicas_in_sync)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(own[context.replica_id_in_sync_group])
        )

    rows, wanted = spread(inputs), spread(targets)
    for _ in range(STEPS):
        step(rows, wanted)
    if not recipe.fused:
        return [*weights, *(v.value for v in optimizer.variables)], before
    names = sorted(optimizer.get_slot_names())
    return [*weights, *(optimizer.get_slot(w, n) for n in names for w in weights)], before


def _model() -> keras.Model:
    """Its kernels have 24x64 and 64x40 elements: no whole tiles, padded, one of them transposed."""
    return keras.Sequential(
        [
            keras.layers.Input((24,)),
            keras.layers.Dense(64, activation="tanh"),
            keras.layers.Dense(40),
        ]
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

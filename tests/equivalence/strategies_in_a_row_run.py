"""One strategy after the other in a program, each of which trains a model of its own.

    python -m tests.equivalence.strategies_in_a_row_run 011

Run by each worker of a cluster, with TF_CONFIG. A 1 stands for a strategy that trains in shards.
All models live to the end, so that slots of the same name do. TensorFlow's kernels do not: they are
cleared before each next strategy, while threads of the sharded one live.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.scenarios_run import digest
from tests.strategies import worker_strategy


def main(shards: str) -> None:
    """Prints JSON: a digest of the weight and slots of each strategy, and which was sharded."""
    kept, was_sharded = [], ""
    for number, is_sharded in enumerate(map(int, shards)):
        (turn_on if is_sharded else turn_off)()
        kept.append(_trained(steps=2 + number))
        was_sharded += str(int(any(r.verdict == "sharded" for r in tf_wu_shard.reports())))
        tf_wu_shard.clear_reports()
        keras.backend.clear_session()
    digests = [digest([np.array(v.numpy()) for v in variables]) for variables in kept]
    print(json.dumps([was_sharded, digests]))


def _trained(steps: int) -> list[Any]:
    strategy = worker_strategy()
    own = strategy.cluster_resolver.task_id
    with strategy.scope():
        weight = tf.Variable(np.linspace(-1, 1, 64 * 8).reshape(64, 8).astype(np.float32))
        optimizer = keras.optimizers.Adam(0.01, name="adam")
        optimizer.build([weight])

    def replica(rows: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((rows @ weight) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

    @tf.function
    def train(rows: tf.Tensor) -> None:
        strategy.run(replica, args=(rows,))

    rows = np.random.default_rng(own).normal(size=(4, 64)).astype(np.float32)
    for _ in range(steps):
        train(tf.constant(rows))
    # TensorFlow fails where worker 0 makes the next strategy later than others, who go on with it.
    time.sleep(own)
    return [weight, *(v.value for v in optimizer.variables)]


if __name__ == "__main__":
    main(*sys.argv[1:])

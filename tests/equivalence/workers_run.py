"""Trains a step as one worker of several, with the flag, and prints what the report says.

TF_CONFIG=... python -m tests.equivalence.workers_run
"""

from __future__ import annotations

import json

import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_on


def main() -> None:
    """Prints the reports' reasons as one line of JSON."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(tf.ones((64, 64)))
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build([weight])

    @tf.function
    def step() -> None:
        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight**2)
            optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])

        strategy.run(replica)

    turn_on()
    step()
    left = [left.reason for report in tf_wu_shard.reports() for left in report.left_alone]
    print(json.dumps(sorted(set(left))))


if __name__ == "__main__":
    main()

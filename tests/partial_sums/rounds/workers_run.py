"""Workers that are late at random: integers whose sum says whether anything was lost.

    python -m tests.partial_sums.rounds.workers_run MODE [late] [two replicas]

with TF_CONFIG. It prints what is to be compared as a line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import cast

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.partial_sums.late_training import SHAPE, LateTraining
from tests.strategies import worker_strategy
from tf_wu_shard import PartialSums
from tf_wu_shard.partial_sums.options import FLAG, Mode

STEPS = 30


class Training(LateTraining):
    """A weight of which each worker's gradient is its input, in rounds."""

    def __init__(self, strategy: tf.distribute.Strategy, mode: str) -> None:
        super().__init__(strategy)
        with strategy.scope():
            # The weight is less by all gradients: nothing is rounded where these are integers.
            self.optimizer = keras.optimizers.SGD(1.0)
            self.optimizer.build([self.weight])
        asked = PartialSums(mode=cast(Mode, mode)) if mode != "synchronous" else False
        tf.config.optimizer.set_experimental_options({FLAG: asked})


def main(mode: str, replicas: int, *, is_late: bool) -> None:
    """Trains and prints."""
    strategy = worker_strategy(replicas)
    training = Training(strategy, mode)
    number, total = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    gradients = np.random.default_rng(4).integers(-9, 10, (STEPS, total, *SHAPE))
    pause = random.Random(number)
    seen, given = [], []
    for step in gradients.astype(np.float32):
        if is_late and pause.random() < 0.4:
            time.sleep(0.03)
        (loss,) = training.run(step[None], None)
        given.append(float(strategy.experimental_local_results(loss)[0]))
        # What all workers have after as many steps.
        seen.append(training.weight.numpy().tobytes().hex()[:64])
    before = training.weight.numpy()
    tf_wu_shard.flush_partial_sums()
    tf_wu_shard.flush_partial_sums()
    after = training.weight.numpy()
    report = tf_wu_shard.reports()[-1]
    print(
        json.dumps(
            {
                "seen": seen,
                "given": given,
                "is_complete": bool(np.array_equal(after, -gradients.sum((0, 1)))),
                "was_complete": bool(np.array_equal(after, before)),
                "iterations": int(training.optimizer.iterations.numpy()),
                "changes": dict(report.changes),
                "verdict": report.verdict,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], 2 if "two replicas" in sys.argv else 1, is_late="late" in sys.argv)

"""A worker that is late at random, as the others are: weights, what waits and the report.

    python -m tests.partial_sums.workers_run sharded|unsharded FILE

with TF_CONFIG. It prints what is to be compared as a line of JSON.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.partial_sums.late_training import LateTraining, random_lateness
from tests.strategies import worker_strategy
from tf_wu_shard import WuShardError


def main(folder: str, *, sharded: bool) -> None:
    """Trains and prints."""
    strategy = worker_strategy()
    gradients, late = random_lateness(strategy.num_replicas_in_sync)
    trained = LateTraining(strategy, sharded=sharded)
    trained.run(gradients, late)
    own = [np.asarray(trained.weight.numpy()), trained.waiting[0]]
    report = tf_wu_shard.reports()[-1]
    # One more, which all are too late for.
    trained.run(gradients[:1], np.full_like(late[:1], 1))
    try:
        held_alone = tf.train.Checkpoint(weight=trained.weight).write(folder)
    except WuShardError as error:
        held_alone = str(error)
    print(
        json.dumps(
            {
                "rank": strategy.cluster_resolver.task_id,
                "held": [one.tobytes().hex() for one in own],
                "changes": dict(report.changes),
                "verdict": report.verdict,
                "checkpoint": held_alone,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[2], sharded=sys.argv[1] == "sharded")

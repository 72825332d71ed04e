"""Workers that take steps until one of them is gone: what they are told, and what goes on.

    python -m tests.partial_sums.rounds.endless_run [NUMBER]

with TF_CONFIG. The worker of that number is slow for ever, and its program ends after some steps.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time

import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.partial_sums.late_training import SHAPE
from tests.partial_sums.rounds.workers_run import Training
from tests.strategies import worker_strategy

# For threads to see it.
_SECONDS = 5.0

_SLOW = 0.05
_STEPS = 20


def main(slow: int | None) -> None:
    """Takes steps until that fails.

    Args:
        slow: Which worker is slow, and ends first.
    """
    strategy = worker_strategy()
    is_slow = strategy.cluster_resolver.task_id == slow
    training = Training(strategy, "majority")
    ones = np.ones([1, strategy.num_replicas_in_sync, *SHAPE], np.float32)
    try:
        for step in itertools.count():
            time.sleep(_SLOW if is_slow else 0.0)
            training.run(ones, None)
            if step == _STEPS:
                print(f"takes steps: {tf_wu_shard.reports()[-1].headline}", flush=True)
                if is_slow:
                    return
    except tf.errors.OpError as error:
        print(f"ended by {type(error).__name__}", flush=True)
    until = time.monotonic() + _SECONDS
    while _of_rounds() and time.monotonic() < until:
        time.sleep(0.05)
    print(f"threads: {_of_rounds()}", flush=True)


def _of_rounds() -> list[str]:
    return [one.name for one in threading.enumerate() if "rounds" in one.name]


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else None)

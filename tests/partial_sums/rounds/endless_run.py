"""Workers that take steps until one of them is gone: what they are told, and what goes on.

    python -m tests.partial_sums.rounds.endless_run

with TF_CONFIG.
"""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import tensorflow as tf

from tests.partial_sums.late_training import SHAPE
from tests.partial_sums.rounds.workers_run import Training
from tests.strategies import worker_strategy

# For threads to see it.
_SECONDS = 5.0


def main() -> None:
    """Takes steps until that fails."""
    strategy = worker_strategy()
    training = Training(strategy, "majority")
    ones = np.ones([1, strategy.num_replicas_in_sync, *SHAPE], np.float32)
    try:
        for step in itertools.count():
            training.run(ones, None)
            if step == 20:
                print("takes steps", flush=True)
    except tf.errors.OpError as error:
        print(f"ended by {type(error).__name__}", flush=True)
    until = time.monotonic() + _SECONDS
    while _of_rounds() and time.monotonic() < until:
        time.sleep(0.05)
    print(f"threads: {_of_rounds()}", flush=True)


def _of_rounds() -> list[str]:
    return [one.name for one in threading.enumerate() if "rounds" in one.name]


if __name__ == "__main__":
    main()

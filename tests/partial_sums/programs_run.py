"""Real programs, plain and then with batches that say that they are in time.

    python -m tests.partial_sums.programs_run NAMES

It prints, for each program, in how many weights, slots, losses and metrics the bits differ, or the
error, as a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.real import program_run
from tests.real.corpus import programs
from tests.real.program import MIRRORED
from tf_wu_shard.partial_sums.options import FLAG

# Lines of Keras that distribute what is evaluated or predicted.
_NO_TRAINING = ("_eval_epoch_iterator = ", "def evaluate", "def predict", "evaluate(", "predict(")


def _in_time(*element: Any) -> Any:
    """A batch that says so."""
    batch = element if len(element) > 1 else element[0]
    first = tf.nest.flatten(batch)[0]
    count = first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]
    return tf_wu_shard.with_lateness(batch, tf.zeros([count], tf.int32))


def _is_for_training() -> bool:
    frames = traceback.extract_stack()[:-2]
    # The last of Keras's frames; a program's own may evaluate in between.
    lines = [frame.line or "" for frame in frames if "keras" in frame.filename]
    return not any(word in line for line in lines for word in _NO_TRAINING)


@contextlib.contextmanager
def _saying_so() -> Iterator[None]:
    kind = tf.distribute.MirroredStrategy
    original = kind.experimental_distribute_dataset

    def distribute(self: Any, dataset: tf.data.Dataset, options: Any = None) -> Any:
        marked = dataset.map(_in_time) if _is_for_training() else dataset
        return original(self, marked, options)

    kind.experimental_distribute_dataset = distribute
    try:
        yield
    finally:
        kind.experimental_distribute_dataset = original


def _compared(strategy: tf.distribute.Strategy, name: str, sharded: bool) -> Any:
    """How many arrays differ and whether gradients might be late, or the error's last line."""
    program = programs()[name]
    plain, wanted = program_run.run(strategy, program, sharded=False)
    assert not plain["error"], plain["error"]
    with _saying_so():
        tf.config.optimizer.set_experimental_options({FLAG: True})
        facts, found = program_run.run(strategy, program, sharded=sharded)
        tf.config.optimizer.set_experimental_options({FLAG: False})
    if facts["error"]:
        return facts["error"].strip().splitlines()[-1]
    different = [
        key
        for key, value in wanted.items()
        if key not in found or not np.array_equal(value, found[key], equal_nan=True)
    ]
    said = [report["changes"].get(FLAG, "") for report in facts["reports"]]
    return len(different), any("may be late" in one for one in said)


def main(names: list[str]) -> None:
    """Runs them and prints."""
    strategy = program_run._strategy(MIRRORED)
    # By turns, as each costs as much as three trainings otherwise.
    found = {name: _compared(strategy, name, i % 2 == 0) for i, name in enumerate(names)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])

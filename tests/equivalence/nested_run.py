"""Runs every scenario of `nested_scenarios` without and with the flag, in a process of its own.

    TF_ENABLE_ONEDNN_OPTS=0 python -m tests.equivalence.nested_run

Neither oneDNN nor Grappler takes part: both fuse a matrix product or sort a sum by what they see of
the variable behind an operand. So the same sums are made in the same order, to the last bit.
"""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import in_shards, turn_off, turn_on
from tests.equivalence.nested_scenarios import SCENARIOS, Left
from tf_wu_shard.emulation import emulated_tpu_strategy


def main() -> None:
    """Prints, as one line of JSON, what came of each scenario."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = emulated_tpu_strategy(4)
    print(json.dumps({name: _compared(strategy, name) for name in SCENARIOS}))


def _compared(strategy: tf.distribute.TPUStrategy, name: str) -> dict[str, Any]:
    """Runs a scenario twice.

    Returns:
        `apart`: which numbers differ; `in_shards`: how many variables live so; `reports`: the text
        of the reports.
    """
    turn_off()
    unsharded = _numbers(_run(strategy, name))
    tf_wu_shard.clear_reports()
    turn_on()
    left = _run(strategy, name)
    turn_off()
    pairs = zip(unsharded, _numbers(left), strict=True)
    return {
        "apart": [i for i, (a, b) in enumerate(pairs) if a.tobytes() != b.tobytes()],
        "in_shards": sum(in_shards(v) for v in left.variables),
        "reports": [str(report) for report in tf_wu_shard.reports()],
    }


def _run(strategy: tf.distribute.TPUStrategy, name: str) -> Left:
    keras.utils.set_random_seed(11)
    return SCENARIOS[name](strategy)


def _numbers(left: Left) -> list[np.ndarray]:
    return [np.array(v.numpy()) for v in left.variables] + [np.asarray(v) for v in left.seen]


if __name__ == "__main__":
    main()

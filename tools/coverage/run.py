"""Cells of the coverage matrix under one strategy, in a process of its own.

    TF_ENABLE_ONEDNN_OPTS=0 python -m tools.coverage.run '{"dialect": ..., "cells": [...]}'

oneDNN's kernels fuse a matrix product with what follows it where they see a variable behind an
operand, and round otherwise then. Grappler does the like by what it sees of a graph.
Without them the same sums are made in the same order, and whatever differs is the sharding.
"""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import tensorflow as tf

from tf_wu_shard.emulation import emulated_tpu_strategy
from tools.coverage.training import compared

_TPU_REPLICAS = 4


def main(job: dict[str, Any]) -> None:
    """Prints a line of JSON for each cell: row, feature, text, notes."""
    on_tpus = job["dialect"] == "tpu"
    cpu = tf.config.list_physical_devices("CPU")[0]
    # Emulated replicas want a host beside them.
    devices = _TPU_REPLICAS + 1 if on_tpus else 2
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * devices
    )
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy: tf.distribute.Strategy
    if on_tpus:
        strategy = emulated_tpu_strategy(_TPU_REPLICAS)
    else:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for row, feature in job["cells"]:
        cell = compared(strategy, row, feature, weights_in_shards=on_tpus)
        print(json.dumps([row, feature, cell.text, cell.notes]), flush=True)
        gc.collect()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Trains 20 steps as one of several workers, with some optimizers, and keeps what came of it.

    TF_CONFIG=... python -m tests.equivalence.other_order_run FOLDER MODE OPTIMIZER...

MODE is `plain`, `packed_otherwise` or `sharded`. Packed otherwise, gradients travel in packs of other
sizes, so that TensorFlow's ring begins to add them up on other workers: the same sums in another
order. Worker 0 writes MODE-OPTIMIZER.npz; each prints digests of its weights and slots.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import in_shards, turn_off, turn_on
from tests.equivalence.net import Net
from tests.equivalence.scenarios_run import digest

STEPS = 20

# Small enough for several packs of the net's 16.8 kB of gradients.
_BYTES_PER_PACK = 3000

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01),
    "lamb": lambda: keras.optimizers.Lamb(0.01),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),
}


def trained(strategy: tf.distribute.Strategy, optimizer: str) -> Net:
    """The net after its steps."""
    keras.utils.set_random_seed(11)
    net = Net(strategy, OPTIMIZERS[optimizer])
    net.run(net.train, STEPS)
    return net


def main(folder: str, mode: str, *optimizers: str) -> None:
    """Prints, as one line of JSON and by optimizer, digests and what was sharded."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    size = _BYTES_PER_PACK if mode == "packed_otherwise" else 0
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(bytes_per_pack=size)
    )
    found: dict[str, Any] = {}
    for name in optimizers:
        tf_wu_shard.clear_reports()
        if mode == "sharded":
            turn_on()
        net = trained(strategy, name)
        turn_off()
        values = [variable.numpy() for variable in net.state]
        found[name] = {
            "weights": digest([variable.numpy() for variable in net.weights]),
            "state": digest(values),
            "in_shards": sum(in_shards(variable) for variable in net.state),
            "verdicts": [report.verdict for report in tf_wu_shard.reports()],
        }
        if strategy.cluster_resolver.task_id == 0:
            np.savez(pathlib.Path(folder) / f"{mode}-{name}.npz", *values)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

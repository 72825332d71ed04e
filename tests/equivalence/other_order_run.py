"""Trains 20 steps as one of several workers, with some optimizers, and keeps what came of it.

    TF_CONFIG=... python -m tests.equivalence.other_order_run FOLDER REPLICAS MODE OPTIMIZER...

REPLICAS is how many each worker has. MODE is `plain`, `packed_otherwise`, `sharded` or `restored`.
Packed otherwise, gradients travel in packs of other sizes, so that TensorFlow's ring begins to add
them up on other workers: the same sums in another order. Worker 0 writes MODE-OPTIMIZER.npz and a
checkpoint, of which `restored` reads the sharded one and trains nothing; each prints digests of its
weights and slots.
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
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.net import Net
from tests.equivalence.scenarios_run import digest
from tests.strategies import worker_strategy
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.workers.cluster import worker_cluster

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


def trained(strategy: tf.distribute.Strategy, optimizer: str, restored: str = "") -> Net:
    """The net after its steps, or as a checkpoint has it."""
    keras.utils.set_random_seed(11)
    net = Net(strategy, OPTIMIZERS[optimizer])
    if restored:
        tf.train.Checkpoint(state=net.state).read(restored).assert_consumed()
    else:
        net.run(net.train, STEPS)
    return net


def kept(net: Net) -> list[tuple[int, int]]:
    """Of each slot in shards the elements that this worker keeps, and all of them."""
    slots = [sharded_slot_of(original_handle(variable.values[0])) for variable in net.state]
    return [
        (int(tf.size(shard.value())), slot.layout.size)
        for slot in slots
        if slot is not None
        for shard in slot.shards
    ]


def main(folder: str, replicas: str, mode: str, *optimizers: str) -> None:
    """Prints, as one line of JSON and by optimizer, digests and what was sharded."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    size = _BYTES_PER_PACK if mode == "packed_otherwise" else 0
    strategy = worker_strategy(int(replicas), bytes_per_pack=size)
    found: dict[str, Any] = {}
    for name in optimizers:
        tf_wu_shard.clear_reports()
        if mode == "sharded":
            turn_on()
        checkpoint = str(pathlib.Path(folder) / f"sharded-{name}")
        net = trained(strategy, name, checkpoint if mode == "restored" else "")
        turn_off()
        values = [variable.numpy() for variable in net.state]
        found[name] = {
            "weights": digest([variable.numpy() for variable in net.weights]),
            "state": digest(values),
            "kept": kept(net),
            "verdicts": [report.verdict for report in tf_wu_shard.reports()],
        }
        if strategy.cluster_resolver.task_id == 0:
            np.savez(pathlib.Path(folder) / f"{mode}-{name}.npz", *values)
            tf.train.Checkpoint(state=net.state).write(str(pathlib.Path(folder) / f"{mode}-{name}"))
    found["order"] = [*worker_cluster(strategy).members] if mode == "sharded" else []
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

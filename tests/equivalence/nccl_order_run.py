"""Traces and runs steps as GPUs would, and says in which order each device's collectives come.

    python -m tests.equivalence.nccl_order_run mirrored
    TF_CONFIG=... python -m tests.equivalence.nccl_order_run workers

In each step the strategy sums something before the update and after it, and small weights are
summed whole. No value leads from most of that to the new collectives, or back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.net import INPUTS, TARGETS, WIDTH, Net
from tests.nccl.on_cpus import stand_in_for_nccl
from tests.nccl.orders import exchanges_of
from tests.strategies import mirrored_strategy, worker_strategy
from tf_wu_shard.step import swap

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    # Its norms are sums of their own.
    "lamb": lambda: keras.optimizers.Lamb(0.01),
}


def looking_up() -> keras.Model:
    """A model with a sparse gradient, whose parts are gathered in branches."""
    return keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Lambda(lambda rows: tf.cast(tf.abs(rows * 9), tf.int32) % 50),
            keras.layers.Embedding(50, 16),
            keras.layers.Flatten(),
            keras.layers.Dense(40),
        ]
    )


def trained(strategy: tf.distribute.Strategy, name: str, is_on: bool) -> list[np.ndarray]:
    """Weights and slots after three steps, and the sums of the last one."""
    keras.utils.set_random_seed(5)
    model, _, optimizer = name.partition(" ")
    net = Net(strategy, OPTIMIZERS[optimizer], *([looking_up] if model == "rows" else []))
    given = net.spread(INPUTS), net.spread(TARGETS)
    if is_on:
        turn_on(dialect="collective", min_elements=64)

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> tuple[tf.Tensor, ...]:
        context = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            loss = net.loss(rows, wanted)
        before = context.all_reduce("SUM", tf.reduce_mean(rows))
        gradients = tape.gradient(loss, net.weights)
        length = context.all_reduce("SUM", tf.norm(gradients[-1]))
        net.apply(gradients)
        after = context.all_reduce("SUM", tf.norm(net.weights[-2]))
        return loss, before, length, after

    @tf.function
    def step(rows: Any, wanted: Any) -> Any:
        return strategy.run(replica, (rows, wanted))

    sums = [step(*given) for _ in range(3)][-1]
    turn_off()
    own = [strategy.experimental_local_results(one)[0] for one in sums]
    return [np.array(value.numpy()) for value in (*net.state, *own)]


def main(ground: str) -> None:
    """Prints, as one line of JSON and by step, the orders and what differs from unsharded."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = worker_strategy() if ground == "workers" else mirrored_strategy()
    emitted = stand_in_for_nccl(strategy)
    orders: list[dict[str, list[str]]] = []
    rebuild = vars(swap)["rebuild"]

    def looked_at(graph: Any, body: Any, **others: Any) -> Any:
        orders.append(exchanges_of(body.nodes))
        return rebuild(graph, body, **others)

    vars(swap)["rebuild"] = looked_at
    found: dict[str, Any] = {}
    for name in ("dense adam", "dense lamb", "rows adam"):
        plain = trained(strategy, name, is_on=False)
        orders.clear()
        emitted.clear()
        tf_wu_shard.clear_reports()
        sharded = trained(strategy, name, is_on=True)
        found[name] = {
            "orders": [*orders[-1].values()],
            "emitted": dict(emitted),
            "by": max(float(np.abs(a - b).max()) for a, b in zip(plain, sharded, strict=True)),
            "reports": [str(report) for report in tf_wu_shard.reports()],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])

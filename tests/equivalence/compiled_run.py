"""Trains a step that XLA compiles, without the flag and with it, and says what came of it.

    python -m tests.equivalence.compiled_run auto | collective
    TF_CONFIG=... python -m tests.equivalence.compiled_run workers

TensorFlow compiles no step that exchanges anything between CPU devices: there both runs are to end
with the same error. A process that had it fails when it ends, so that this one ends without that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_off, turn_on
from tests.equivalence.nested_scenarios import adam
from tests.equivalence.net import INPUTS, TARGETS, Net
from tests.equivalence.scenarios_run import digest
from tests.strategies import mirrored_strategy, worker_strategy
from tf_wu_shard.errors import StorageError


def gradients_alone(net: Net) -> Callable[..., Any]:
    """XLA compiles what computes the gradients; the update is beside it."""

    @tf.function(jit_compile=True)
    def gradients(rows: tf.Tensor, wanted: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = net.loss(rows, wanted)
        return tape.gradient(loss, net.weights)

    def replica(rows: tf.Tensor, wanted: tf.Tensor) -> None:
        net.apply(gradients(rows, wanted))

    return tf.function(lambda *own: net.strategy.run(replica, own))


def replicas(net: Net) -> Callable[..., Any]:
    """It compiles what each replica runs, the update in it."""
    replica = tf.function(net.train, jit_compile=True)
    return tf.function(lambda *own: net.strategy.run(replica, own))


def step(net: Net) -> Callable[..., Any]:
    """It compiles the step as a whole."""
    return tf.function(lambda *own: net.strategy.run(net.train, own), jit_compile=True)


# A failed collective is the end of all others, so that the one that works comes first.
STEPS = {made.__name__: made for made in (gradients_alone, replicas, step)}


def outcome(strategy: tf.distribute.Strategy, name: str) -> tuple[str, str, list[str]]:
    """The type of the error, or "", a digest of weights and slots, and why something is left."""
    tf_wu_shard.clear_reports()
    keras.utils.set_random_seed(11)
    net = Net(strategy, adam())
    given = net.spread(INPUTS), net.spread(TARGETS)
    train, error = STEPS[name](net), ""
    try:
        for _ in range(3):
            train(*given)
    except tf.errors.OpError as raised:
        error = type(raised).__name__
    reasons = {left.reason for report in tf_wu_shard.reports() for left in report.left_alone}
    return error, digest([variable.numpy() for variable in net.state]), sorted(reasons)


def read_by_xla(strategy: tf.distribute.Strategy) -> str:
    """What is said of a compiled function that reads a slot in shards."""
    net = Net(strategy, adam())
    net.run(net.train, 1)
    slot = net.optimizer.variables[2].value

    @tf.function(jit_compile=True)
    def length() -> tf.Tensor:
        return tf.norm(slot)

    try:
        return str(length().numpy())
    except StorageError as error:
        return str(error)


def main(ground: str) -> None:
    """Prints, as one line of JSON, what came of each step without the flag and with it."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = worker_strategy() if ground == "workers" else mirrored_strategy()
    turn_on(dialect="auto" if ground == "workers" else ground)
    found: dict[str, Any] = {"read": read_by_xla(strategy)}
    for name in STEPS:
        turn_off()
        plain = outcome(strategy, name)
        turn_on(dialect="auto" if ground == "workers" else ground)
        found[name] = [plain, outcome(strategy, name)]
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])

"""The process that traces for `scaling`: `python -m tf_wu_shard.bench.scaling_worker`.

It serves one command: `step` (count, optimizer, replicas) or `no_reduction`
(count, replicas).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import graph_pass
from tf_wu_shard.bench import optimizers, training
from tf_wu_shard.bench.conversation import serve

# Small weights, as only their number counts here.
_SHAPE = (32, 32)
_CALLS = 31


def step(count: int, optimizer: str, replicas: int) -> dict[str, float]:
    """Traces a custom loop's step that updates `count` variables.

    Args:
        count: How many.
        optimizer: A name in `tf_wu_shard.bench.optimizers.SLOTS`.
        replicas: Of the MirroredStrategy.

    Returns:
        Milliseconds as the report has them: pass_ms, trace_ms.
    """
    strategy = training.mirrored_strategy(replicas)
    training.shard_or_raise(min_elements=1)
    with strategy.scope():
        weights = [keras.Variable(tf.ones(_SHAPE)) for _ in range(count)]
        rule = optimizers.make(optimizer)
        rule.build(weights)

    def on_replica() -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.square(weight.value)) for weight in weights])
        rule.apply_gradients(
            zip(tape.gradient(loss, [weight.value for weight in weights]), weights, strict=True)
        )

    @tf.function
    def train() -> None:
        strategy.run(on_replica)

    train.get_concrete_function()
    reports = [report for report in tf_wu_shard.reports() if report.variables]
    return {
        "pass_ms": sum(report.pass_ms for report in reports),
        "trace_ms": sum(report.trace_ms for report in reports),
    }


def no_reduction(count: int, replicas: int) -> float:
    """Puts an evaluation's graph, which reads `count` variables and trains none, through the pass.

    Args:
        count: How many.
        replicas: Of the MirroredStrategy.

    Returns:
        Median time of the pass on it, milliseconds.
    """
    strategy = training.mirrored_strategy(replicas)
    training.shard_or_raise(min_elements=1)
    with strategy.scope():
        weights = [tf.Variable(tf.ones(_SHAPE)) for _ in range(count)]

    @tf.function
    def evaluate() -> tf.Tensor:
        return strategy.run(lambda: tf.add_n([tf.reduce_sum(weight) for weight in weights]))

    graph = evaluate.get_concrete_function().graph
    seconds = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        graph_pass.process(graph, trace_seconds=0.0)
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


_COMMANDS: dict[str, Callable[..., Any]] = {"step": step, "no_reduction": no_reduction}


def main() -> int:
    """Serves one parent; returns the exit status."""
    return serve(_COMMANDS)


if __name__ == "__main__":
    sys.exit(main())

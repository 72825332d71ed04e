"""The four stages in a row, each at hand, on a step that a strategy really traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.in_process.recognise import replica_devices
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.step.capture import Captured, capture
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.rewrite.result import RewriteResult
from tf_wu_shard.weight_update.rewrite.rewriter import rewrite
from tf_wu_shard.weight_update.sharding import Sharding


@dataclasses.dataclass(frozen=True)
class Stages:
    """What each stage made of one graph."""

    captured: Captured
    dialect: Dialect
    analysis: Analysis
    plan: ShardingPlan
    result: RewriteResult

    @property
    def sharding(self) -> Sharding:
        """The last three as passes hand them on."""
        return Sharding(self.dialect, self.plan, self.result)

    @property
    def view(self) -> GraphView:
        """The old graph."""
        return self.captured.view


def run_stages(graph: Any, options: ShardingOptions | None = None) -> Stages:
    """Captures, analyses, plans and rewrites a FuncGraph; changes nothing."""
    captured = capture(graph)
    dialect = InProcess(in_this_process(replica_devices(captured.view)))
    analysis = analyze(captured.view, dialect)
    plan = make_plan(
        analysis,
        options or ShardingOptions(min_elements=1),
        dialect.preferences,
    )
    result = rewrite(captured.view, plan, dialect)
    return Stages(captured, dialect, analysis, plan, result)


def keras_step(
    strategy: tf.distribute.Strategy,
    optimizer: Callable[[], Any],
    shapes: tuple[tuple[int, ...], ...] = ((5, 40), (40,), (3,)),
    first: int = 0,
) -> Any:
    """The FuncGraph of a step that trains variables of these shapes with a Keras optimizer.

    The variables are called w and a number, counted from `first`.
    """
    with strategy.scope():
        weights = [tf.Variable(tf.ones(s), name=f"w{i}") for i, s in enumerate(shapes, first)]
        made = optimizer()
        made.build(weights)

    @tf.function(autograph=False)
    def step() -> Any:
        def replica() -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(w * w) for w in weights])
            made.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return loss

        return strategy.run(replica)

    graph = step.get_concrete_function().graph
    graph.keeps = (weights, made)
    return graph

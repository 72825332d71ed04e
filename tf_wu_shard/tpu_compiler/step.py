"""The train step of a Keras model, as `TPUStrategy` traces it, with no TPU.

The real Keras train function is called; it is left, by an exception that no program catches by
class, the moment its function is traced. So nothing is lowered, compiled for this machine or run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_wu_shard import models, reports
from tf_wu_shard.bench import optimizers
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.calls import CALLS
from tf_wu_shard.rules.writes import WRITES, writes_rows
from tf_wu_shard.tensorflow_private import trace_watch
from tf_wu_shard.tensorflow_private.tpu_strategy import tpu_topology
from tf_wu_shard.tensorflow_private.traced_only import (
    traced_only_strategy,
    uses_of_trainable_variables,
)
from tf_wu_shard.topology import Topology
from tf_wu_shard.tpu_compiler.body import has_cluster

_WRITING = frozenset(op_type for op_type in WRITES if not writes_rows(op_type))


class NoTrainStepError(WuShardError, RuntimeError):
    """A program ended and no train step was traced for a TPU."""


class _Traced(BaseException):
    """Leaves the program that traced a train step."""


def traced_step(run: Callable[[], object]) -> Any:
    """Runs a program until it traces a train step for a TPU.

    Args:
        run: The program, a function without arguments.

    Returns:
        The FuncGraph of the first train step, rewritten if the flag is on.

    Raises:
        NoTrainStepError: The program ended before.
        BaseException: What the program raised before.
    """
    found: list[Any] = []

    def leave_at_a_train_step(graph: Any) -> None:
        if found or (has_cluster(graph) and _trains(graph)):
            found.append(graph)
            raise _Traced

    try:
        with trace_watch.watching(leave_at_a_train_step):
            run()
    except BaseException:
        # The program may have made another exception of ours, and what it does after that counts
        # no more.
        if not found:
            raise
    if not found:
        raise NoTrainStepError("no train step was traced under a TPUStrategy")
    return found[0]


def strategy_for(topology: Topology) -> tf.distribute.TPUStrategy:
    """A strategy with a replica on every device of a slice; it only traces."""
    return traced_only_strategy(tpu_topology(topology.mesh, topology.coordinates))


def trace_model(
    model_name: str, *, optimizer: str, batch: int, strategy: tf.distribute.TPUStrategy
) -> Any:
    """Traces the train step of one of the project's models.

    Args:
        model_name: A name that `tf_wu_shard.models.build` knows.
        optimizer: A name in `tf_wu_shard.bench.optimizers.NAMES`.
        batch: Examples a replica.
        strategy: One that only traces.

    Returns:
        The FuncGraph that `strategy.run` was traced into, rewritten if the flag is on.

    Raises:
        OptionError: There is no such model.
    """
    with strategy.scope():
        model = models.build(model_name)
        model.compile(optimizer=optimizers.make(optimizer), loss=models.loss(model_name))
        model.optimizer.build(model.trainable_variables)
    return trace(model, models.data(model_name, batch), strategy)


def trace(
    model: keras.Model, example: Sequence[np.ndarray], strategy: tf.distribute.TPUStrategy
) -> Any:
    """Traces the train step of a model.

    Args:
        model: Compiled and its optimizer built under the strategy.
        example: What one replica is fed in a step, inputs and targets.
        strategy: One that only traces.

    Returns:
        The FuncGraph that `strategy.run` was traced into, rewritten if the flag is on.
    """
    data = tuple(_on_every_replica(strategy, tf.constant(array)) for array in example)
    return traced_step(lambda: _call_train_function(model, data))


def _on_every_replica(strategy: tf.distribute.TPUStrategy, tensor: tf.Tensor) -> Any:
    return strategy.experimental_distribute_values_from_function(lambda _: tensor)


def _call_train_function(model: keras.Model, data: Any) -> None:
    model.make_train_function()
    model.train_function(iter([data]))


def _trains(graph: Any) -> bool:
    """Whether a graph updates weights; where all of them are in shards, it has no handle of one."""
    reported = (report.function.partition("/")[0] for report in reports() if report.variables)
    return graph.name in reported or _writes_a_trainable_variable(graph)


def _writes_a_trainable_variable(graph: Any) -> bool:
    """Whether the cluster writes a weight, itself or in a function that it hands the weight to."""
    uses = uses_of_trainable_variables(graph)
    if uses & _WRITING:
        return True
    return bool(uses & CALLS) and any(
        node.op in _WRITING
        for function in graph.as_graph_def().library.function
        for node in function.node_def
    )

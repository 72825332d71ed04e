"""Functions run on all replicas of a strategy, and what came of it in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf


def run(
    strategy: tf.distribute.Strategy, function: Callable[..., Any], *given: npt.ArrayLike
) -> list[np.ndarray]:
    """Traces one step that runs a function on every replica, and takes it.

    Args:
        strategy: On whose replicas.
        function: Returns one tensor.
        *given: Its arguments; each replica gets its row of each.

    Returns:
        The tensor in each replica.
    """

    @tf.function
    def step(*values: Any) -> Any:
        return strategy.run(function, args=values)

    return each(strategy, step(*(spread(strategy, rows) for rows in given)))


def spread(strategy: tf.distribute.Strategy, rows: npt.ArrayLike) -> Any:
    """A value that is another row of `rows` in each replica."""
    values = [tf.constant(row) for row in np.asarray(rows)]
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


def each(strategy: tf.distribute.Strategy, result: Any) -> list[np.ndarray]:
    """A tensor of a result in each replica, in their order."""
    return [value.numpy() for value in strategy.experimental_local_results(result)]


def number() -> tf.Tensor:
    """The number of the replica that asks, a float32 scalar."""
    return tf.cast(context().replica_id_in_sync_group, tf.float32)


def context() -> tf.distribute.ReplicaContext:
    """The replica's context."""
    return tf.distribute.get_replica_context()

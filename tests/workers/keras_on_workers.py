"""Repairs two bugs of Keras 3.15 that keep fit and evaluate from running on workers.

Keras 3.15 has code for MultiWorkerMirroredStrategy, and it fails there:

- `Trainer._maybe_symbolic_build` hands the first batch, a tuple, to `Strategy.reduce`, which takes
  one value. It wants nothing of the batch but shapes and dtypes, which any local replica's has.
- `reduce_per_replica` takes the mean of the metrics over replicas with `axis=0`, which asks each
  replica for a value with a batch dimension. A metric is a scalar, so the axis is None.

Both are repaired in this process for as long as a block lasts; the installed files stay as they
are. Nothing else is repaired: callbacks know no chief, and each worker writes all that they write.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Collection, Iterator
from typing import Any
from unittest import mock

import tensorflow as tf
from keras.src import tree
from keras.src.backend.tensorflow import trainer

_build = trainer.TensorFlowTrainer._maybe_symbolic_build
_reduce_per_replica = trainer.reduce_per_replica


class Bug(enum.Enum):
    """One of the two; its value is what the error that it causes says."""

    BUILD = "Attempt to convert a value (PerReplica:{"
    METRICS = "Invalid reduction dimension 0 for input with 0 dimensions"


@contextlib.contextmanager
def keras_on_workers(repaired: Collection[Bug] = tuple(Bug)) -> Iterator[None]:
    """Lets Keras run on workers inside of a block; every step is to be traced inside of it.

    Args:
        repaired: The bugs to repair.
    """
    with contextlib.ExitStack() as patches:
        if Bug.BUILD in repaired:
            owner = trainer.TensorFlowTrainer
            patches.enter_context(mock.patch.object(owner, "_maybe_symbolic_build", _built))
        if Bug.METRICS in repaired:
            patches.enter_context(mock.patch.object(trainer, "reduce_per_replica", _reduced))
        yield


def _built(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """Builds the model from a local replica's part of the first batch."""
    strategy = self.distribute_strategy
    if iterator is not None and _on_workers(strategy):
        _, _, batches = next(iter(iterator))
        data_batch = tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], next(batches)
        )
        iterator = None
    _build(self, iterator, data_batch)


def _reduced(values: Any, strategy: tf.distribute.Strategy, reduction: str) -> Any:
    """Takes a mean over the replicas of all workers, as it is taken over those of one process."""
    if reduction not in ("auto", "mean") or not _on_workers(strategy):
        return _reduce_per_replica(values, strategy, reduction)
    return tree.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), values)


def _on_workers(strategy: tf.distribute.Strategy) -> bool:
    found: bool = trainer._collective_all_reduce_multi_worker(strategy)
    return found

"""The workers' table, kept by TensorFlow's coordination service in the process of worker 0.

Answers: the `Store` of a MultiWorkerMirroredStrategy. It does not promise anything once the cluster
is lost, as it is when worker 0 has ended or another has died: every call raises `StoreError` then,
and so does every one that waits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import tensorflow as tf

from tf_wu_shard.tensorflow_private import worker_cluster
from tf_wu_shard.workers.loss import Loss
from tf_wu_shard.workers.store import StoreError

_PREFIX = "tf_wu_shard/"

# What is there is read in 1 ms; on a busy machine the service must still have the time to say so.
_SHORTEST_MILLISECONDS = 100


class ClusterStore:
    """The table of a running cluster; made after the strategy, in each of its processes."""

    def __init__(self, loss: Loss) -> None:
        """Makes the table of this process.

        Args:
            loss: What ends waits.
        """
        self._loss = loss

    def insert(self, key: str, text: str) -> bool:
        """See `Store.insert`."""
        with _service("insert", key):
            return self._loss.unless_lost(lambda: worker_cluster.insert(_PREFIX + key, text))

    def get(self, key: str, seconds: float) -> str | None:
        """See `Store.get`; looking once for what is not there takes a tenth of a second."""
        with _service("read", key):
            wait = _milliseconds(seconds)
            return self._loss.unless_lost(lambda: worker_cluster.get(_PREFIX + key, wait))

    def remove(self, key: str) -> None:
        """See `Store.remove`."""
        with _service("remove", key):
            self._loss.unless_lost(lambda: worker_cluster.remove(_PREFIX + key))


def _milliseconds(seconds: float) -> int:
    if math.isinf(seconds):
        # To the service, without end.
        return 0
    return max(_SHORTEST_MILLISECONDS, math.ceil(seconds * 1000))


@contextlib.contextmanager
def _service(verb: str, key: str) -> Iterator[None]:
    try:
        yield
    except tf.errors.OpError as error:
        # What follows the first line is gRPC's.
        message = error.message.partition("\n")[0]
        raise StoreError(
            f"TensorFlow's coordination service did not {verb} {_PREFIX + key!r}"
            f" ({type(error).__name__}: {message}); it runs in worker 0, and"
            " only under a strategy of several workers"
        ) from error

"""This process among the workers of a strategy: it watches the others, and takes its leave.

Made once a worker asks something of the others. It does not keep the strategy alive.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

import tensorflow as tf

from tf_wu_shard.tensorflow_private import steady_context
from tf_wu_shard.workers.farewells import Farewells
from tf_wu_shard.workers.loss import Loss
from tf_wu_shard.workers.shard_exchange import ShardExchange
from tf_wu_shard.workers.store import Store, StoreError
from tf_wu_shard.workers.tensorflow_collectives import TensorFlowCollectives
from tf_wu_shard.workers.watch import Watch

# How long a worker whose program has ended goes on handing its shards to others.
_LINGER_SECONDS = 60.0


class Presence:
    """One worker's, until its program has ended.

    Attributes:
        watch: Over the others.
        exchange: Where this worker hands its shards out, if it has any.
    """

    def __init__(self, strategy: tf.distribute.Strategy, store: Store, loss: Loss) -> None:
        """Begins to watch.

        Args:
            strategy: A MultiWorkerMirroredStrategy of one replica a worker.
            store: The table that all workers share.
            loss: What the watch declares.
        """
        # The watch and the exchange are threads.
        steady_context.once_idle()
        self._collectives = TensorFlowCollectives(strategy)
        self._farewells = Farewells(store, self._collectives.number)
        self.watch = Watch(
            self._collectives.others,
            self._collectives.addresses,
            self._collectives,
            self._farewells,
            loss,
        )
        self.exchange: ShardExchange | None = None
        self._process = os.getpid()
        atexit.register(self._leave)

    def has_left(self, worker: int) -> bool:
        """Whether a worker has said that its program ends.

        Args:
            worker: Its number.
        """
        return self._farewells.of(worker) is not None

    def _leave(self) -> None:
        """What the program does last."""
        if os.getpid() != self._process:
            # A fork of the worker ends, which has none of its threads: the worker goes on.
            return
        # The others of one that failed are to learn of it as fast as they do without sharding.
        failed = getattr(sys, "last_value", None) is not None
        if not failed:
            # Where the table cannot be reached, nobody is left to hear it.
            with contextlib.suppress(StoreError):
                self._farewells.say(self._collectives.begun())
        if self.exchange is not None:
            self.exchange.leave(0.0 if failed else _LINGER_SECONDS)
        self.watch.end()

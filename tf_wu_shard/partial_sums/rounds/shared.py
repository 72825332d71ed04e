"""Rounds as traced functions call them, and as what is late is handed in outside of steps."""

from __future__ import annotations

import atexit
import dataclasses
import importlib.metadata
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.partial_sums.rounds import messages
from tf_wu_shard.partial_sums.rounds.contributions import RoundsEndedError
from tf_wu_shard.partial_sums.rounds.rounds import Rounds
from tf_wu_shard.partial_sums.rounds.starts import may_start
from tf_wu_shard.partial_sums.rounds.sums import Kind, Sums
from tf_wu_shard.partial_sums.rounds.table import RoundTable
from tf_wu_shard.tensorflow_private import worker_collectives
from tf_wu_shard.tensorflow_private.python_calls import EagerCall
from tf_wu_shard.tensorflow_private.worker_group import GroupOfWorkers
from tf_wu_shard.workers.agreement import PLAN, Proposal
from tf_wu_shard.workers.cluster import WorkerCluster
from tf_wu_shard.workers.store import StoreError

# How long workers wait for each other while they trace.
_SECONDS = 60.0

_THREAD = "tf_wu_shard rounds"

_ENDED = "the program ends"

_SECONDS_TO_WAIT_IN_SILENCE = 30.0

# Of groups of one; 0 is another's.
_numbers = itertools.count(1)


@dataclasses.dataclass
class UpdateAlone:
    """What one trace of a step makes of sums that came too late for any step.

    Attributes:
        update: Takes a tensor for each sum; None where the trace's update cannot run by itself, or
            is not known yet.
    """

    update: Callable[[Sequence[Any]], None] | None = None


class SharedRounds:
    """What ops of traced functions call.

    Attributes:
        name: The same on all workers.
        rounds: This worker's part.
        kinds: What is known of each gradient, and of the lists of sparse ones.
        group_of_one: The key of a group of this worker alone, in which no other collective is.
    """

    def __init__(
        self,
        name: str,
        cluster: WorkerCluster,
        weights: Sequence[Any],
        options: PartialSums,
        dense: Sequence[Kind],
        lists: Sequence[Kind],
        others: Sequence[Kind],
    ) -> None:
        """Begins to take part, once all workers have agreed to.

        Args:
            name: The same on all workers.
            cluster: The workers.
            weights: What is trained, variables of a MultiWorkerMirroredStrategy.
            options: What the user asked for.
            dense: What is known of what is exchanged, see `Sums`.
            lists: Likewise.
            others: Likewise.
        """
        number, total = cluster.number, cluster.total
        strategy = weights[0].distribute_strategy
        # They keep it, in what stands beside them.
        self._weights = [weakref.ref(one) for one in weights]
        self.name = name
        self._total = total
        self._num_replicas = int(strategy.num_replicas_in_sync)
        self.kinds = [*dense, *lists]
        self._others = [*others]
        self._said: dict[str, EagerCall] = {}
        self._has_batch: dict[int, EagerCall] = {}
        self._cluster = cluster
        self.group_of_one = worker_collectives.key_of_one(number, next(_numbers))
        sums = Sums(GroupOfWorkers(strategy, name), number, total, dense, lists, others)
        self.rounds = Rounds(
            _THREAD,
            number,
            total,
            options.max_staleness,
            lambda one: may_start(options.mode, options.seed, one, number, total),
            RoundTable(cluster.store, name, options.max_staleness, cluster.has_left),
            sums,
            sums.add,
            worker_collectives.give_up,
        )
        self._exchanges: list[EagerCall] = []
        # Before the worker takes its leave, which says in how many collectives it took part.
        atexit.register(_end, weakref.ref(self))

    def flush(self) -> None:
        """See `flush_partial_sums`."""
        if not self.rounds.is_settled:
            self._hand_in(keeps=False)
            if self.rounds.carried:
                logging.warning(messages.IS_LEFT)

    def check_shapes(self, others: Sequence[Kind]) -> None:
        """Raises WuShardError where values beside gradients have no shape of all steps.

        Args:
            others: What is known of them in one more trace.
        """
        for (before, _), (dims, _) in zip(self._others, others, strict=True):
            if before is not None and dims is not None and (before != dims or None in dims):
                raise WuShardError(messages.OTHER_SHAPES % (before, dims))

    def trains(self, variables: Sequence[Any]) -> bool:
        """Whether some of these variables are among what is trained."""
        own = {id(one) for one in (weight() for weight in self._weights) if one is not None}
        return not own.isdisjoint(map(id, variables))

    def settle(self) -> None:
        """Lets all workers hand in what is late; their next step takes it.

        Raises:
            WuShardError: Another worker goes on to its next step.
        """
        if self.rounds.is_used:
            self._hand_in(keeps=True)

    def _hand_in(self, *, keeps: bool) -> None:
        warning = threading.Timer(
            _SECONDS_TO_WAIT_IN_SILENCE, logging.warning, [messages.WAITS_FOR_OTHERS]
        )
        warning.daemon = True
        warning.start()
        try:
            done = self.rounds.hand_in_rest(keeps=keeps)
        except (RoundsEndedError, StoreError) as error:
            reason = worker_collectives.are_given_up(self._cluster.number)
            if reason is not None:
                said = f"{messages.LOST}: {reason}"
                raise tf.errors.UnavailableError(None, None, said) from error
            raise WuShardError(f"{messages.LOST}: {error}") from error
        finally:
            warning.cancel()
        if not done:
            raise WuShardError(messages.GOES_ON)

    def said(self, name: str, shape: Sequence[int], dtype: int) -> EagerCall:
        """Called with a value after an exchange; see `Rounds.say`. All workers agree on it first.

        Args:
            name: The same on all workers, for each value another.
            shape: Its shape.
            dtype: Its element type, the DataType enum's number.

        Raises:
            WuShardError: Another worker has another, or none.
        """
        if name not in self._said:
            with tf.init_scope():
                nothing = tf.constant(np.zeros(shape, tf.as_dtype(dtype).as_numpy_dtype))
            number = self.rounds.new_value(nothing)
            total = self._total

            def say(value: tf.Tensor) -> list[Any]:
                found = self.rounds.say(number, value)
                return [value * tf.cast(total, value.dtype) if found is None else found]

            self._said[name] = EagerCall(say, [dtype])
            agree(self._cluster, [name], repr((tuple(shape), dtype)))
        return self._said[name]

    def has_batch(self, dtype: int) -> EagerCall:
        """Called with how many replicas of this worker have a batch; see `Rounds.has_batch`.

        Args:
            dtype: Its element type, the DataType enum's number.
        """
        if dtype not in self._has_batch:

            def count(own: tf.Tensor) -> list[Any]:
                try:
                    found = self.rounds.has_batch(bool(own.numpy().sum()))
                except (RoundsEndedError, StoreError):
                    # The step that comes next raises TensorFlow's own error.
                    found = True
                return [tf.fill(own.shape, tf.cast(self._num_replicas if found else 0, own.dtype))]

            self._has_batch[dtype] = EagerCall(count, [dtype])
        return self._has_batch[dtype]

    def exchange(self, alone: UpdateAlone) -> EagerCall:
        """Called by one trace with gradients and other values; see `Rounds.exchange`.

        Args:
            alone: The trace's update: what is late goes into that of the step that ran last.
        """
        count = len(self.kinds)

        def exchange(*operands: tf.Tensor) -> list[Any]:
            self.rounds.finish = alone.update
            try:
                found = self.rounds.exchange(operands[:count], operands[count:])
            except (RoundsEndedError, StoreError) as error:
                if isinstance(error, StoreError):
                    worker_collectives.give_up(str(error))
                # What comes next in the step raises TensorFlow's own error.
                return list(operands)
            return [*found.gradients, *found.values]

        types = [dtype for _, dtype in itertools.chain(self.kinds, self._others)]
        self._exchanges.append(EagerCall(exchange, types))
        return self._exchanges[-1]

    @property
    def tokens(self) -> set[str]:
        """Of the ops that call what `exchange` returned."""
        return {one.token for one in self._exchanges}


def _end(rounds: weakref.ref[SharedRounds]) -> None:
    """Ends rounds as the program ends, and says so where something is lost."""
    found = rounds()
    if found is not None:
        if found.rounds.pending or found.rounds.carried:
            logging.warning(messages.IS_LOST)
        found.rounds.end(_ENDED)


def agree(cluster: WorkerCluster, about: Sequence[str], plan: str, options: str = "") -> None:
    """Raises WuShardError where not all workers sum the same in rounds.

    Args:
        cluster: The workers.
        about: What this is about, the same names on all.
        plan: What they have to be of one mind on.
        options: What the user asked for.
    """
    version = importlib.metadata.version("tf-wu-shard")
    proposal = Proposal({"version": version, "options": options, PLAN: plan})
    decision = cluster.agree(["partial sums", *about], proposal, _SECONDS)
    if not decision.agreed:
        raise WuShardError(
            f"not all workers sum the same in rounds: {decision.summary}; set the same flag, with"
            " the same options, on all workers, and trace the same step there"
        )

"""The rounds that all functions share which train the same weights, on all workers alike."""

from __future__ import annotations

import atexit
import collections
import hashlib
import importlib.metadata
import itertools
import operator
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.partial_sums.rounds import messages
from tf_wu_shard.partial_sums.rounds.contributions import RoundsEndedError
from tf_wu_shard.partial_sums.rounds.record import Record
from tf_wu_shard.partial_sums.rounds.rounds import Rounds
from tf_wu_shard.partial_sums.rounds.starts import may_start
from tf_wu_shard.partial_sums.rounds.sums import Kind, Sums
from tf_wu_shard.partial_sums.rounds.table import RoundTable
from tf_wu_shard.tensorflow_private import worker_collectives
from tf_wu_shard.tensorflow_private.checkpoint_companions import variables_in
from tf_wu_shard.tensorflow_private.eager_batches import before_eager_batches
from tf_wu_shard.tensorflow_private.epoch_ends import before_epochs_end
from tf_wu_shard.tensorflow_private.model_saves import before_saves
from tf_wu_shard.tensorflow_private.python_calls import EagerCall
from tf_wu_shard.tensorflow_private.worker_group import GroupOfWorkers
from tf_wu_shard.workers.agreement import PLAN, Proposal
from tf_wu_shard.workers.cluster import WorkerCluster
from tf_wu_shard.workers.store import StoreError

# How long workers wait for each other while they trace.
_SECONDS = 60.0

_THREAD = "tf_wu_shard rounds"

_ENDED = "the program ends"

# Batches in a row that were taken outside of functions, each for a step in rounds.
_ENOUGH_TO_TELL = 3

_SECONDS_TO_WAIT_IN_SILENCE = 30.0

# By their name. They last as long as the weights: what waits in them is of no one function.
_shared: dict[str, SharedRounds] = {}
_lock = threading.Lock()

# Of groups of one; 0 is another's.
_numbers = itertools.count(1)


class SharedRounds:
    """What ops of traced functions call.

    Attributes:
        name: The same on all workers.
        rounds: This worker's part.
        kinds: What is known of each gradient, and of the lists of sparse ones.
        eager_batches: Of the last batches that were taken outside of functions, how many steps
            there were before each.
        exchange: Called with gradients and other values; see `Rounds.exchange`.
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
        # How many steps there were when batches were taken outside of functions.
        self.eager_batches: collections.deque[int] = collections.deque(maxlen=1 + _ENOUGH_TO_TELL)
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
            RoundTable(cluster.store, name, cluster.has_left),
            sums,
            sums.add,
            worker_collectives.give_up,
        )
        types = [dtype for _, dtype in itertools.chain(dense, lists, others)]
        self.exchange = EagerCall(self._exchange, types)
        before_epochs_end(_flush_those_of)
        before_saves(_flush_those_of)
        before_eager_batches(_notice_eager_batch)
        # Before the worker takes its leave, which says in how many collectives it took part.
        atexit.register(self.rounds.end, _ENDED)

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
        told = threading.Timer(
            _SECONDS_TO_WAIT_IN_SILENCE, logging.warning, [messages.WAITS_FOR_OTHERS]
        )
        told.daemon = True
        told.start()
        try:
            goes_on = self.rounds.has_batch(False, keeps=keeps)
        except (RoundsEndedError, StoreError) as error:
            reason = worker_collectives.are_given_up(self._cluster.number)
            if reason is not None:
                said = f"{messages.LOST}: {reason}"
                raise tf.errors.UnavailableError(None, None, said) from error
            raise WuShardError(f"{messages.LOST}: {error}") from error
        finally:
            told.cancel()
        if goes_on:
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
            _agree(self._cluster, [name], repr((tuple(shape), dtype)))
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

    def _exchange(self, *operands: tf.Tensor) -> list[Any]:
        count = len(self.kinds)
        try:
            found = self.rounds.exchange(operands[:count], operands[count:])
        except (RoundsEndedError, StoreError):
            # What comes next in the step raises TensorFlow's own error.
            return list(operands)
        return [*found.gradients, *found.values]


def rounds_of(
    cluster: WorkerCluster,
    weights: Sequence[Any],
    names: Sequence[str],
    options: PartialSums,
    dense: Sequence[Kind],
    lists: Sequence[Kind],
    others: Sequence[Kind],
) -> SharedRounds:
    """The rounds of some weights, the same for every trace; begun when first asked for.

    Args:
        cluster: The workers.
        weights: What is trained, variables of a MultiWorkerMirroredStrategy. The rounds end with
            the first.
        names: Of these, as all workers call them.
        options: What the user asked for.
        dense: What is known of the dense gradients.
        lists: Of the rows of sparse ones, and of the numbers of these.
        others: Of the other values.

    Raises:
        WuShardError: Not all workers want the same.
    """
    # Of shapes a trace for one batch may know more than one for another, and workers trace at times
    # of their own.
    types = [[dtype for _, dtype in kinds] for kinds in (dense, lists, others)]
    asked = repr((sorted(names), options, types))
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    with _lock:
        if digest not in _shared:
            _agree(cluster, sorted(names), digest, repr(options))
            # A step is being traced.
            with tf.init_scope():
                _shared[digest] = SharedRounds(
                    digest, cluster, weights, options, dense, lists, others
                )
            weakref.finalize(weights[0], _drop, digest).atexit = False
        _shared[digest].check_shapes(others)
        return _shared[digest]


def _drop(digest: str) -> None:
    """Ends the rounds of weights that are gone; those of others may go on as long as they like."""
    found = _shared.pop(digest, None)
    if found is not None:
        found.rounds.finish = None
        found.rounds.end("the weights are gone")


def flush_partial_sums() -> None:
    """Lets workers hand in what is late of all steps taken so far, and updates the weights with it.

    Call it on all workers, after as many steps on each, at the end of a training or before a model
    is saved; at the end of each epoch Keras' `fit` has it called, and so has whatever writes a file
    of Keras' or a SavedModel. A `tf.train.Checkpoint` holds what is late by itself.

    It waits for all of them, takes no step of the optimizer's count, and does nothing where nothing
    is late, or replicas of one process take all steps together. Where another worker is gone it
    ends with TensorFlow's `UnavailableError`.

    Raises:
        WuShardError: Another worker goes on to its next step.
    """
    for one in begun_rounds():
        one.flush()


def _flush_those_of(model: Any) -> None:
    """Hands in what is late of a model's weights: another model may be one worker's own."""
    rounds = [one for one in begun_rounds() if not one.rounds.is_settled]
    variables = variables_in(model) if rounds else []
    for one in rounds:
        if one.trains(variables):
            one.flush()


def _notice_eager_batch() -> None:
    """Warns once where each step in rounds waits for all workers before it begins."""
    for one in begun_rounds():
        one.eager_batches.append(one.rounds.num_steps)
        steps = [*one.eager_batches]
        if len(steps) > _ENOUGH_TO_TELL and all(map(operator.lt, steps, steps[1:])):
            logging.log_first_n(logging.WARNING, messages.WAITS_FOR_BATCHES, 1)


def begun_rounds() -> list[SharedRounds]:
    """All rounds of this process, in the order in which they were begun."""
    return [*_shared.values()]


def last_record() -> Record:
    """What happened in the rounds that were begun last.

    Raises:
        WuShardError: There are none.
    """
    if not _shared:
        raise WuShardError("no step of this process is summed in rounds")
    return begun_rounds()[-1].rounds.record


def _agree(cluster: WorkerCluster, about: Sequence[str], plan: str, options: str = "") -> None:
    version = importlib.metadata.version("tf-wu-shard")
    proposal = Proposal({"version": version, "options": options, PLAN: plan})
    decision = cluster.agree(["partial sums", *about], proposal, _SECONDS)
    if not decision.agreed:
        raise WuShardError(
            f"not all workers sum the same in rounds: {decision.summary}; set the same flag, with"
            " the same options, on all workers, and trace the same step there"
        )

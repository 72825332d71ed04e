"""All rounds of this process: one for all functions that train the same weights in the same way."""

from __future__ import annotations

import collections
import hashlib
import operator
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.options import PartialSums
from tf_wu_shard.partial_sums.rounds import messages
from tf_wu_shard.partial_sums.rounds.record import Record
from tf_wu_shard.partial_sums.rounds.shared import SharedRounds, agree
from tf_wu_shard.partial_sums.rounds.sums import Kind
from tf_wu_shard.tensorflow_private.checkpoint_companions import variables_in
from tf_wu_shard.tensorflow_private.eager_batches import before_eager_batches
from tf_wu_shard.tensorflow_private.epoch_ends import before_epochs_end
from tf_wu_shard.tensorflow_private.model_saves import before_saves
from tf_wu_shard.workers.cluster import WorkerCluster

# Batches in a row that were taken outside of functions, each for a step in rounds.
_ENOUGH_TO_TELL = 3

# By their name. They last as long as the weights: what waits in them is of no one function.
_shared: dict[str, SharedRounds] = {}
_lock = threading.Lock()

# By the name of rounds, how many steps there were when batches were taken outside of functions.
_eager_batches: collections.defaultdict[str, collections.deque[int]] = collections.defaultdict(
    lambda: collections.deque(maxlen=1 + _ENOUGH_TO_TELL)
)


def rounds_of(
    cluster: WorkerCluster,
    weights: Sequence[Any],
    names: Sequence[str],
    options: PartialSums,
    dense: Sequence[Kind],
    lists: Sequence[Kind],
    others: Sequence[Kind],
    places: object,
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
        places: Where the gradient of which weight is, by the names, as it is shown.

    Raises:
        WuShardError: Not all workers want the same.
    """
    # Of shapes a trace for one batch may know more than one for another, and workers trace at times
    # of their own.
    types = [[dtype for _, dtype in kinds] for kinds in (dense, lists, others)]
    asked = repr((sorted(names), options, types, places))
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    with _lock:
        if digest not in _shared:
            if any(one.trains(weights) for one in begun_rounds()):
                logging.log_first_n(logging.WARNING, messages.OTHER_ROUNDS, 1)
            agree(cluster, sorted(names), digest, repr(options))
            # A step is being traced.
            with tf.init_scope():
                _shared[digest] = SharedRounds(
                    digest, cluster, weights, options, dense, lists, others
                )
            weakref.finalize(weights[0], _drop, digest).atexit = False
            before_epochs_end(_flush_those_of)
            before_saves(_flush_those_of)
            before_eager_batches(_notice_eager_batch)
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
        steps = _eager_batches[one.name]
        steps.append(one.rounds.num_steps)
        if len(steps) > _ENOUGH_TO_TELL and all(map(operator.lt, [*steps], [*steps][1:])):
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

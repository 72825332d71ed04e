"""The collectives of this process: whether TensorFlow has given them up, and how it is made to.

When a worker is lost TensorFlow gives up all collectives of every other one, and that is for good.
It says so to collectives alone, by an error of those that wait and of all later ones.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.eager import context

from tf_wu_shard.tensorflow_private import steady_context

# TensorFlow counts the keys of its groups from 1. Each worker is a group of one, as worker 0 keeps
# all groups.
_FIRST_GROUP = 1 << 30
_MOST_WORKERS = 1 << 16


def are_given_up(worker: int) -> str | None:
    """Why no collective of this process can succeed any more; None where they can.

    A collective of this worker alone tells. It takes a tenth of a millisecond, and waits for
    nobody, not even for a worker 0 that is stopped, but for its first time.

    Args:
        worker: This worker's number.
    """
    try:
        with steady_context.in_use(), tf.device("/device:CPU:0"):
            tf.raw_ops.CollectiveReduceV2(
                input=tf.constant(0.0),
                group_size=1,
                group_key=key_of_one(worker, 0),
                instance_key=1,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
            )
    except tf.errors.OpError as error:
        return _in_short(error.message)
    return None


def key_of_one(worker: int, number: int) -> int:
    """The key of a group of one worker alone.

    Args:
        worker: The worker's number.
        number: Which of its groups; 0 is that of `are_given_up`.
    """
    return _FIRST_GROUP + number * _MOST_WORKERS + worker


def _in_short(message: str) -> str:
    """What a message of TensorFlow's says of the cause, in one line, without what stands around."""
    _, _, words = message.rpartition("Collective ops is aborted by: ")
    for what_follows in ("Additional GRPC error information", "The error could be from"):
        words, _, _ = words.partition(what_follows)
    return " ".join(words.split())


def give_up(reason: str) -> None:
    """Ends all collectives of this process, for good, with an error that gives a reason."""
    with steady_context.in_use():
        context.context().abort_collective_ops(tf.errors.UNAVAILABLE, reason)


def is_lost(task: str) -> bool:
    """Whether a worker cannot be reached, or was started anew; one that says nothing may be slow.

    No other thread runs meanwhile, a second at most.

    Args:
        task: Its name, as in "/job:worker/replica:0/task:1".
    """
    error = _called(task, 1000)
    return isinstance(error, tf.errors.UnavailableError | tf.errors.FailedPreconditionError)


def answers(task: str) -> bool:
    """Whether a worker answers; one that is stopped does not.

    No other thread runs meanwhile, two seconds at most.

    Args:
        task: Its name.
    """
    return _called(task, 2000) is None


def _called(task: str, milliseconds: int) -> tf.errors.OpError | None:
    """What comes of a call of TensorFlow's to a worker; None where it has answered."""
    try:
        with steady_context.in_use():
            context.context().check_collective_ops_peer_health(task, milliseconds)
    except tf.errors.OpError as error:
        return error
    return None

"""How workers add up what they hand in for a round: by collectives of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from tf_wu_shard.partial_sums.rounds.record import NUM_NUMBERS, Part
from tf_wu_shard.partial_sums.rounds.rounds import Contribution, RoundSum
from tf_wu_shard.tensorflow_private import steady_context

# A float64 does not hold all of them.
_ALONE = (tf.int64, tf.uint64)


class Group(Protocol):
    """Who takes part."""

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """The sum of what all give, once they have; all take part in the same order."""
        ...


class Sums:
    """Takes part in rounds for one worker.

    Each gradient travels as it is, so that nothing is copied. All else, and what is noted of the
    round, travels in one vector of float64, which holds every float and every int32; an int64, of
    which it holds those below 2 ** 53, in a collective of its own.
    """

    def __init__(self, group: Group, number: int, total: int) -> None:
        """Prepares; nothing travels yet.

        Args:
            group: The workers.
            number: This worker's number.
            total: How many there are.
        """
        self._group = group
        self._number = number
        self._total = total
        self._nothing: Sequence[tf.Tensor] = ()

    def __call__(self, contribution: Contribution) -> RoundSum:
        """The sums over all workers, the same on each.

        Args:
            contribution: This worker's; the first one has gradients.
        """
        with steady_context.in_use():
            gradients = self._total_of(contribution.gradients)
            sums = [self._group.sum(one) for one in gradients]
            values, said, numbers = self._others(contribution)
        parts = [Part.of(row) for row in numbers.reshape([self._total, NUM_NUMBERS])]
        return RoundSum(sums, values, said, parts)

    def _total_of(self, steps: Sequence[Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
        """The sum of the gradients of some steps; zeros of none."""
        if not steps:
            return self._nothing
        first, *others = steps
        if not self._nothing:
            # -0.0, as x + -0.0 = x for all x. Made by NumPy: TensorFlow takes 0.0 and -0.0 for one
            # number, and keeps a tensor of it.
            self._nothing = [
                tf.constant(np.full(one.shape, -0.0, one.dtype.as_numpy_dtype)) for one in first
            ]
        for other in others:
            # In the order in which they came, so that the sum's bits are no matter of luck.
            first = [total + one for total, one in zip(first, other, strict=True)]
        return first

    def _others(
        self, contribution: Contribution
    ) -> tuple[Sequence[tf.Tensor], Sequence[tf.Tensor | None], np.ndarray]:
        """The sums of the other values, of those that were said, and what all workers noted."""
        own = np.zeros([self._total, NUM_NUMBERS])
        own[self._number] = contribution.part.numbers()
        together = [one for one in contribution.values if one.dtype not in _ALONE]
        flat = [_flat(one) for one in together]
        for value, is_there in contribution.said:
            flat.append(tf.concat([_flat(value), [float(is_there)]], 0))
        whole = self._group.sum(tf.concat([*flat, own.ravel()], 0))
        *found, numbers = tf.split(whole, [*(int(one.shape[0]) for one in flat), own.size])
        summed = iter(found)
        values = [
            self._group.sum(one) if one.dtype in _ALONE else _shaped(next(summed), one)
            for one in contribution.values
        ]
        said = [self._said(next(summed), like) for like, _ in contribution.said]
        return values, said, numbers.numpy()

    def _said(self, summed: tf.Tensor, like: tf.Tensor) -> tf.Tensor | None:
        """A sum in which some workers' shares may be missing, as if they were as the others'."""
        count = float(summed[-1])
        return _shaped(summed[:-1] * (self._total / count), like) if count else None


def _flat(value: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.cast(value, tf.float64), [-1])


def _shaped(summed: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reshape(summed, like.shape), like.dtype)

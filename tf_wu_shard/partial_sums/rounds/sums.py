"""How workers add up what they hand in for a round: by collectives of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from tf_wu_shard.partial_sums.rounds.contributions import Contribution, RoundSum
from tf_wu_shard.partial_sums.rounds.record import NUM_NUMBERS, Part
from tf_wu_shard.tensorflow_private import steady_context

# A float64 does not hold all of these, and nothing of the imaginary parts of others.
_ALONE = (tf.int64, tf.uint64, tf.complex64, tf.complex128)

# What a list is filled up with.
_NO_ROW = -1


# The dimensions of a value, but for how long a list is, and its element type, the DataType enum's
# number.
Kind: TypeAlias = tuple[tuple[int, ...], int]


class Group(Protocol):
    """Who takes part."""

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """The sum of what all give, once they have; all take part in the same order."""
        ...

    def gather(self, tensor: tf.Tensor) -> tf.Tensor:
        """What all give, one after the other; it has the same shape on all workers."""
        ...


class Sums:
    """Takes part in rounds for one worker.

    Each dense gradient travels as it is, so that nothing is copied. Sparse ones are lists of rows
    and of the rows' numbers; they are filled up to the longest one of any worker with rows that
    have no number. All else, and what is noted of the round, travels in one vector of float64,
    which holds every float and every int32; an int64, of which it holds those below 2 ** 53, in a
    collective of its own.
    """

    def __init__(
        self,
        group: Group,
        number: int,
        total: int,
        dense: Sequence[Kind],
        lists: Sequence[Kind],
        others: Sequence[Kind],
    ) -> None:
        """Prepares; nothing travels yet.

        Args:
            group: The workers.
            number: This worker's number.
            total: How many there are.
            dense: What is known of the dense gradients. They come first.
            lists: Of the rows of each sparse one, and of the numbers of these.
            others: Of the other values.
        """
        self._group = group
        self._number = number
        self._total = total
        self._num_dense = len(dense)
        # What a worker hands in that has nothing.
        self._nothing = [*map(_zeros, dense), *map(_no_rows, lists)]
        self._no_values = [*map(_zeros, others)]

    def __call__(self, contribution: Contribution) -> RoundSum:
        """The sums over all workers, the same on each.

        Args:
            contribution: This worker's.
        """
        with steady_context.in_use():
            gradients = self._total_of(contribution.gradients)
            lists = gradients[self._num_dense :]
            own = np.zeros([self._total, NUM_NUMBERS + len(lists)])
            own[self._number] = [*contribution.part.numbers(), *(len(one) for one in lists)]
            values, said, noted = self._others(contribution, own)
            sums = [self._group.sum(one) for one in gradients[: self._num_dense]]
            longest = noted[:, NUM_NUMBERS:].max(axis=0, initial=0.0).astype(int).tolist()
            sums += self._together(lists, longest)
        parts = [Part.of(row[:NUM_NUMBERS]) for row in noted]
        return RoundSum(sums, values, said, parts)

    def add(self, one: Sequence[tf.Tensor], other: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of two steps, added up; sparse ones one after the other."""
        both = zip(one, other, strict=True)
        return [
            first + second if number < self._num_dense else tf.concat([first, second], 0)
            for number, (first, second) in enumerate(both)
        ]

    def _total_of(self, steps: Sequence[Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
        """The sum of the gradients of some steps; zeros of none."""
        if not steps:
            return self._nothing
        total, *others = steps
        for other in others:
            # In the order in which they came, so that the sum's bits are no matter of luck.
            total = self.add(total, other)
        return total

    def _together(self, lists: Sequence[tf.Tensor], longest: Sequence[int]) -> list[tf.Tensor]:
        """All workers' lists one after the other, in the order of the group."""
        found: list[tf.Tensor] = []
        for place in range(0, len(lists), 2):
            rows, numbers = lists[place : place + 2]
            # TensorFlow gathers no lists that are all empty.
            if longest[place]:
                missing = longest[place] - len(rows)
                rows = self._group.gather(_filled(rows, missing, 0))
                numbers = self._group.gather(_filled(numbers, missing, _NO_ROW))
                is_row = numbers != _NO_ROW
                rows, numbers = rows[is_row], numbers[is_row]
            found += [rows, numbers]
        return found

    def _others(
        self, contribution: Contribution, own: np.ndarray
    ) -> tuple[Sequence[tf.Tensor], Sequence[tf.Tensor | None], np.ndarray]:
        """The sums of the other values, of those that were said, and what all workers noted."""
        given = self._no_values if contribution.values is None else contribution.values
        together = [one for one in given if one.dtype not in _ALONE]
        flat = [_flat(one) for one in together]
        for value, is_there in contribution.said:
            flat.append(tf.concat([_flat(value), [float(is_there)]], 0))
        whole = self._group.sum(tf.concat([*flat, own.ravel()], 0))
        *found, noted = tf.split(whole, [*(int(one.shape[0]) for one in flat), own.size])
        summed = iter(found)
        values = [
            self._group.sum(one) if one.dtype in _ALONE else _shaped(next(summed), one)
            for one in given
        ]
        said = [self._said(next(summed), like) for like, _ in contribution.said]
        return values, said, noted.numpy().reshape(own.shape)

    def _said(self, summed: tf.Tensor, like: tf.Tensor) -> tf.Tensor | None:
        """A sum in which some workers' shares may be missing, as if they were as the others'."""
        count = float(summed[-1])
        return _shaped(summed[:-1] * (self._total / count), like) if count else None


def _zeros(kind: Kind) -> tf.Tensor:
    dims, dtype = kind
    # -0.0, as x + -0.0 = x for all x. Made by NumPy: TensorFlow takes 0.0 and -0.0 for one number,
    # and keeps a tensor of it.
    return tf.constant(np.full(dims, -0.0).astype(tf.as_dtype(dtype).as_numpy_dtype))


def _no_rows(kind: Kind) -> tf.Tensor:
    dims, dtype = kind
    return tf.zeros([0, *dims[1:]], tf.as_dtype(dtype))


def _filled(rows: tf.Tensor, missing: int, value: int) -> tf.Tensor:
    paddings = [[0, missing]] + [[0, 0]] * (rows.shape.rank - 1)
    return tf.pad(rows, paddings, constant_values=value)


def _flat(value: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.cast(value, tf.float64), [-1])


def _shaped(summed: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.reshape(summed, like.shape), like.dtype)

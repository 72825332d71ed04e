"""How workers add up what they hand in for a round: by collectives of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.partial_sums.rounds.contributions import Contribution, RoundSum
from tf_wu_shard.partial_sums.rounds.record import NUM_NUMBERS, Part
from tf_wu_shard.tensorflow_private import steady_context

# So many elements are copied in a tenth of a millisecond.
_MOST_JOINED = 1 << 18

# What a list is filled up with.
_NO_ROW = -1


# The dimensions of a value, as far as they are known, and its element type, the DataType enum's
# number.
Kind: TypeAlias = tuple[tuple[int | None, ...] | None, int]


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

    A collective takes some milliseconds, whatever it moves. So what is small travels together; a
    large gradient travels as it is, so that nothing is copied. Sparse ones are lists of rows and of
    the rows' numbers; they are filled up to the longest one of any worker with rows that have no
    number.
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
        self._nothing: list[tf.Tensor | None] = [*map(_zeros, dense), *map(_no_rows, lists)]
        self._no_values = [*map(_zeros, others)]
        self._has_learnt = False

    def __call__(self, contribution: Contribution) -> RoundSum:
        """The sums over all workers, the same on each.

        Args:
            contribution: This worker's.
        """
        with steady_context.in_use():
            gradients = self._total_of(contribution.gradients)
            dense, lists = gradients[: self._num_dense], gradients[self._num_dense :]
            values = contribution.values
            if values is None:
                values = [_known(one) for one in self._no_values]
            said = [value for value, _ in contribution.said]
            there = np.array([is_there for _, is_there in contribution.said], np.float32)
            own = np.zeros([self._total, NUM_NUMBERS + len(lists)], np.float32)
            own[self._number] = [*contribution.part.numbers(), *(len(one) for one in lists)]
            found = iter(self._sum_all([*dense, *values, *said, there, own]))
            sums = [next(found) for _ in dense]
            sums_of_values = [next(found) for _ in values]
            sums_of_said = [next(found) for _ in said]
            counts, noted = next(found), next(found)
            longest = noted[:, NUM_NUMBERS:].max(axis=0, initial=0.0).astype(int).tolist()
            sums += self._together(lists, longest)
            all_said = [*map(self._scaled, sums_of_said, counts)]
        parts = [Part.of(row[:NUM_NUMBERS]) for row in noted]
        return RoundSum(sums, sums_of_values, all_said, parts)

    def _scaled(self, summed: Any, count: float) -> Any | None:
        """A sum of what some workers have not said yet, as if they had said what the others have.

        Args:
            summed: What the others have said.
            count: How many these are.
        """
        if not count or count == self._total:
            return summed if count else None
        array = np.asarray(summed)
        return (array * (self._total / count)).astype(array.dtype)

    def _sum_all(self, arrays: Sequence[Any]) -> list[Any]:
        """The sums of some tensors: small ones of float32 travel in one vector, others alone.

        In NumPy, as an op of TensorFlow takes ten times as long to begin.
        """
        found = [_array(one) for one in arrays]
        joins = [one is not None for one in found]
        vector = np.concatenate([one.ravel() for one in found if one is not None])
        whole = self._group.sum(tf.constant(vector)).numpy()
        ends = np.cumsum([one.size for one in found if one is not None])
        parts = iter(np.split(whole, ends[:-1]))
        return [
            next(parts).reshape(one.shape) if is_small else self._group.sum(one)
            for one, is_small in zip(arrays, joins, strict=True)
        ]

    def add(self, one: Sequence[tf.Tensor | None], other: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of two steps, added up; sparse ones one after the other.

        Args:
            one: Of the first; None for nothing.
            other: Of the second.
        """
        both = zip(one, other, strict=True)
        return [self._added(number, *pair) for number, pair in enumerate(both)]

    def _added(self, number: int, first: tf.Tensor | None, second: tf.Tensor) -> tf.Tensor:
        if first is None:
            return second
        return first + second if number < self._num_dense else tf.concat([first, second], 0)

    def _total_of(self, steps: Sequence[Sequence[tf.Tensor]]) -> Sequence[tf.Tensor]:
        """The sum of the gradients of some steps; zeros of none."""
        if not steps:
            return [_known(one) for one in self._nothing]
        total, *others = steps
        if not self._has_learnt:
            # Not all shapes are known as a step is traced.
            self._nothing = [
                _zeros((tuple(one.shape), one.dtype.as_datatype_enum))
                if number < self._num_dense
                else one[:0]
                for number, one in enumerate(total)
            ]
            self._has_learnt = True
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


def _array(value: Any) -> np.ndarray | None:
    """A small array of float32, of a tensor too; None of all others."""
    if value.dtype != np.float32 or np.prod(value.shape) > _MOST_JOINED:
        return None
    return np.asarray(value)


def _zeros(kind: Kind) -> tf.Tensor | None:
    """A tensor of zeros; None where its shape is not known."""
    dims, dtype = kind
    if dims is None or None in dims:
        return None
    # -0.0, as x + -0.0 = x for all x. Made by NumPy: TensorFlow takes 0.0 and -0.0 for one number,
    # and keeps a tensor of it.
    zeros = np.full([size or 0 for size in dims], -0.0)
    return tf.constant(zeros.astype(tf.as_dtype(dtype).as_numpy_dtype))


def _no_rows(kind: Kind) -> tf.Tensor | None:
    dims, dtype = kind
    return None if dims is None else _zeros(((0, *dims[1:]), dtype))


def _known(nothing: tf.Tensor | None) -> tf.Tensor:
    if nothing is None:
        raise WuShardError(
            "a worker that has no batch for its first step cannot take part in rounds: the shape of"
            " what is summed is known only from a batch; give each worker one"
        )
    return nothing


def _filled(rows: tf.Tensor, missing: int, value: int) -> tf.Tensor:
    paddings = [[0, missing]] + [[0, 0]] * (rows.shape.rank - 1)
    return tf.pad(rows, paddings, constant_values=value)

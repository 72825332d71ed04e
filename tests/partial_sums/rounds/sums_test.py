"""What workers add up in a round: dense gradients, lists of rows, and all other values."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.partial_sums.rounds.contributions import Contribution, RoundSum
from tf_wu_shard.partial_sums.rounds.record import Part
from tf_wu_shard.partial_sums.rounds.sums import Sums

_SECONDS = 20.0

_VALUES: list[Any] = [
    np.array([[1.5, 2]], np.float32),
    np.int32(7),
    np.int64(2**60),
    np.array([1e-300]),
]


class _Group:
    """Workers that are threads."""

    def __init__(self, total: int) -> None:
        self._met = threading.Barrier(total, timeout=_SECONDS)
        self._given: dict[int, tf.Tensor] = {}
        self._total = total

    def of(self, worker: int) -> _Member:
        return _Member(self, worker)

    def all(self, worker: int, tensor: tf.Tensor) -> list[tf.Tensor]:
        self._given[worker] = tensor
        self._met.wait()
        found = [self._given[one] for one in range(self._total)]
        self._met.wait()
        return found


class _Member:
    def __init__(self, group: _Group, worker: int) -> None:
        self._group, self._worker = group, worker

    def sum(self, tensor: tf.Tensor) -> tf.Tensor:
        return tf.add_n(self._group.all(self._worker, tensor))

    def gather(self, tensor: tf.Tensor) -> tf.Tensor:
        return tf.concat(self._group.all(self._worker, tensor), 0)


def _in_rounds(rounds: Sequence[Sequence[Contribution]], num_dense: int) -> list[list[RoundSum]]:
    """What each worker gets of each round; [workers][rounds]."""
    total = len(rounds[0])
    group, first = _Group(total), rounds[0][0]
    kinds = [(tuple(one.shape), one.dtype.as_datatype_enum) for one in first.gradients[0]]
    others = [(tuple(one.shape), one.dtype.as_datatype_enum) for one in first.values or ()]
    dense, lists = kinds[:num_dense], kinds[num_dense:]
    sums = [Sums(group.of(one), one, total, dense, lists, others) for one in range(total)]

    def take_part(worker: int) -> list[RoundSum]:
        return [sums[worker](each[worker]) for each in rounds]

    with concurrent.futures.ThreadPoolExecutor(total) as threads:
        return [*threads.map(take_part, range(total))]


def _given(
    *steps: Sequence[Any], values: Sequence[Any] = (), said: Sequence[tuple[Any, bool]] = ()
) -> Contribution:
    gradients = [[tf.constant(one) for one in step] for step in steps]
    part = Part(bool(steps), len(steps), 0, False, False)
    return Contribution(gradients, [tf.constant(one) for one in values], said, part)


def test_who_hands_in_nothing_adds_a_zero_that_changes_no_bit() -> None:
    own = np.array([-0.0, 1.5, np.inf], np.float32)
    first = [_given([own]), _given([own])]
    second = [_given([own]), _given()]
    found = _in_rounds([first, second], num_dense=1)
    for worker in found:
        bits = np.asarray(worker[1].gradients[0]).view(np.uint32)
        np.testing.assert_array_equal(bits, own.view(np.uint32))
        assert worker[1].parts == [
            Part(True, 1, 0, False, False),
            Part(False, 0, 0, False, False),
        ]


def test_gradients_of_several_steps_are_added_up() -> None:
    ones = np.ones([2], np.float16)
    (found, _) = _in_rounds([[_given([ones], [2 * ones]), _given([4 * ones])]], num_dense=1)
    np.testing.assert_array_equal(found[0].gradients[0], 7 * ones)


def test_lists_stand_one_after_the_other_whatever_their_lengths() -> None:
    def rows(*numbers: int) -> list[Any]:
        return [np.array([[n, n] for n in numbers], np.float32).reshape(-1, 2), np.array(numbers)]

    first = [_given(rows(1)), _given(rows(2)), _given(rows(3))]
    second = [_given(rows(5, 0), rows(0)), _given(), _given(rows(7))]
    third = [_given(), _given(), _given()]
    for worker in _in_rounds([first, second, third], num_dense=0):
        values, numbers = worker[1].gradients
        np.testing.assert_array_equal(numbers, [5, 0, 0, 7])
        np.testing.assert_array_equal(values, [[5, 5], [0, 0], [0, 0], [7, 7]])
        assert worker[2].gradients[0].shape == (0, 2)


def test_other_values_keep_their_shapes_and_types() -> None:
    values = _VALUES
    each = _given([np.float32(0)], values=values)
    for worker in _in_rounds([[each, each]], num_dense=1):
        for one, found in zip(values, worker[0].values, strict=True):
            np.testing.assert_array_equal(found, one + one)
            assert found.dtype == one.dtype


def test_what_a_worker_has_not_said_counts_as_what_the_others_have() -> None:
    three = [tf.constant([3.0]), tf.constant([6.0]), tf.constant([0.0])]
    said = [[(three[0], True)], [(three[1], True)], [(three[2], False)]]
    none = [[(three[2], False)]] * 3
    rounds = [[_given([np.float32(0)], said=one) for one in each] for each in (said, none)]
    for worker in _in_rounds(rounds, num_dense=1):
        np.testing.assert_array_equal(worker[0].said[0], [13.5])
        assert worker[1].said == [None]


def test_a_worker_that_never_had_a_batch_takes_part() -> None:
    value = np.array([[2, 3]], np.float32)
    none = Contribution([], None, [], Part(False, 0, 0, False, True))
    for worker in _in_rounds([[_given([value], values=[value]), none]], num_dense=1):
        np.testing.assert_array_equal(worker[0].gradients[0], value)
        np.testing.assert_array_equal(worker[0].values[0], value)

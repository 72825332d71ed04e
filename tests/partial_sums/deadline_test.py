"""A dataset with a deadline: every batch comes, in order, and stand-ins come where one is late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard import PartialSums, WuShardError, deadline_dataset
from tf_wu_shard.partial_sums import deadline
from tf_wu_shard.partial_sums.lateness import LateTensor
from tf_wu_shard.partial_sums.options import FLAG

# Short, as stand-ins are waited for; and long, where a batch is there at once but for a busy CPU.
SHORT, LONG = 20, 20_000


@pytest.fixture(autouse=True)
def _flag_on() -> Iterator[None]:
    tf.config.optimizer.set_experimental_options({FLAG: True})
    yield
    tf.config.optimizer.set_experimental_options({FLAG: False})


class Gate:
    """A dataset of numbers, one in a batch, each of which waits until it is let through."""

    def __init__(self, count: int, first: int = 0) -> None:
        self._open = [threading.Event() for _ in range(count)]
        self._first = first
        numbers = tf.data.Dataset.range(first, first + count)
        self.dataset = numbers.map(self._passed).batch(1)

    def _passed(self, number: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.py_function(self._wait, [number], tf.int64), ())

    def _wait(self, number: tf.Tensor) -> tf.Tensor:
        assert self._open[int(number) - self._first].wait(60.0)
        return number

    def close(self, number: int) -> None:
        """Lets a number through no longer."""
        self._open[number - self._first].clear()

    def let(self, *numbers: int) -> None:
        """Lets numbers through."""
        for number in numbers:
            self._open[number - self._first].set()


def seen(batch: LateTensor) -> tuple[int, int]:
    """What is in a batch of one, and how late it is."""
    return int(batch.value[0]), int(batch.late[0])


def test_batches_in_time_are_as_they_were() -> None:
    numbers = tf.data.Dataset.range(7).batch(3)
    found = list(deadline_dataset(numbers, LONG))
    assert [one.value.numpy().tolist() for one in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [one.late.numpy().tolist() for one in found] == [[0, 0, 0], [0, 0, 0], [0]]
    # From the beginning again.
    again = deadline_dataset(numbers, LONG)
    assert len(list(again)) == len(list(again)) == 3


def test_where_a_batch_is_late_the_one_before_stands_in() -> None:
    gate = Gate(3)
    gate.let(0)
    found = iter(deadline_dataset(gate.dataset, SHORT))
    assert [seen(next(found)) for _ in range(2)] == [(0, 0), (0, 3)]
    gate.let(1, 2)
    rest = [seen(one) for one in found]
    assert [one for one in rest if one[1] == 0] == [(1, 0), (2, 0)]


@pytest.mark.parametrize("most", [1, 3])
def test_after_so_many_stand_ins_a_batch_is_waited_for(most: int) -> None:
    tf.config.optimizer.set_experimental_options({FLAG: PartialSums(max_staleness=most)})
    gate = Gate(2)
    gate.let(0)
    found = iter(deadline_dataset(gate.dataset, SHORT))
    assert [seen(next(found)) for _ in range(most + 1)] == [(0, 0), *[(0, 3)] * most]
    threading.Timer(0.2, lambda: gate.let(1)).start()
    # The end of the data may be late, too.
    assert seen(next(found)) == (1, 0)


def test_replicas_with_datasets_of_their_own_are_late_by_themselves() -> None:
    slow, fast = Gate(2), Gate(3, first=10)
    fast.let(10, 11, 12)
    slow.let(0)
    found = iter(deadline_dataset([slow.dataset, fast.dataset], SHORT * 10))
    rounds = [[seen(next(found)) for _ in range(2)] for _ in range(2)]
    assert rounds == [[(0, 0), (10, 0)], [(0, 3), (11, 0)]]
    slow.let(1)
    # Whoever has come to its end stands in until all have.
    rest = [seen(one) for one in found]
    assert len(rest) % 2 == 0
    assert [one for one in rest if not one[1]] in ([(1, 0), (12, 0)], [(12, 0), (1, 0)])


def test_an_iterator_that_is_dropped_leaves_no_thread() -> None:
    def readers() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "deadline_dataset"]

    found = iter(deadline_dataset(tf.data.Dataset.range(1000).batch(1), LONG))
    next(found)
    (reader,) = readers()
    del found
    reader.join(timeout=30.0)
    assert not readers()


def test_who_stops_before_all_batches_came_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """As Keras does where an epoch needs more steps than the first."""
    gate = Gate(3)
    # By itself, as tf.data asks for more than is taken.
    rounds = deadline.BatchesInTime([gate.dataset], SHORT / 1e3)
    gate.let(0, 1, 2)
    assert sum(not int(late[0]) for _, late in rounds()) == 3
    assert "did not come" not in caplog.text
    gate.close(1)
    found = rounds()
    assert [int(next(found)[1][0]) for _ in range(3)] == [0, 3, 3]
    found.close()
    gate.let(1)
    assert "2 of the 3 batches of a deadline_dataset did not come" in caplog.text


def test_ragged_and_sparse_tensors_come_through() -> None:
    rows = tf.ragged.constant([[1, 2], [3], [4, 5, 6]])
    data = tf.data.Dataset.from_tensor_slices((rows, [7.0, 8.0, 9.0])).batch(2)

    def wide(row: Any, number: tf.Tensor) -> dict[str, Any]:
        return {"a": row, "b": number, "c": tf.sparse.from_dense(row.to_tensor())}

    first, second = deadline_dataset(data.map(wide), LONG)
    assert first["a"].to_list() == [[1, 2], [3]] and second["a"].to_list() == [[4, 5, 6]]
    assert first["b"].value.numpy().tolist() == [7.0, 8.0]
    assert [one["b"].late.numpy().tolist() for one in (first, second)] == [[0, 0], [0]]
    np.testing.assert_array_equal(tf.sparse.to_dense(first["c"]), [[1, 2], [3, 0]])


def test_labels_may_be_none() -> None:
    data = four().map(lambda number: (number, None)).batch(2)
    found = list(deadline_dataset(data, cast(Any, np.float32(LONG))))
    assert [(one.value.numpy().tolist(), label) for one, label in found] == [
        ([0, 1], None),
        ([2, 3], None),
    ]


def test_what_a_dataset_raises_is_raised() -> None:
    def failing() -> Iterator[list[float]]:
        yield [1.0]
        raise ValueError("the file is gone")

    data = tf.data.Dataset.from_generator(failing, output_signature=tf.TensorSpec([1]))
    found = iter(deadline_dataset(data, LONG))
    next(found)
    with pytest.raises(tf.errors.OpError, match="the file is gone"):
        next(found)


def test_without_the_flag_nothing_stands_in() -> None:
    tf.config.optimizer.set_experimental_options({FLAG: False})
    data = deadline_dataset(four().batch(2), LONG)
    with pytest.raises(tf.errors.OpError, match="hands out stand-ins, on which a step trains as"):
        list(data)


def four() -> tf.data.Dataset:
    """Made when a test asks: devices are set up before."""
    return tf.data.Dataset.range(4)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no dataset": (lambda: deadline_dataset([1, 2], 50), "takes a tf.data.Dataset or several"),
    "nothing": (lambda: deadline_dataset([], 50), "takes a tf.data.Dataset or several"),
    "no time": (lambda: deadline_dataset(four().batch(2), 0), "milliseconds above 0, such as 50"),
    "a text": (lambda: deadline_dataset(four().batch(2), cast(Any, "9")), "milliseconds above 0"),
    "no batches": (lambda: deadline_dataset(four(), 50), r"apply it after batch\(\)"),
    "of two lengths": (
        lambda: deadline_dataset(four().map(lambda n: (tf.zeros([8]), tf.zeros([1]))), 50),
        r"apply it after batch\(\)",
    ),
    "datasets in it": (lambda: deadline_dataset(four().window(2), 50), r"apply it after batch\(\)"),
    "unequal": (
        lambda: deadline_dataset([four().batch(2), four().batch(2, drop_remainder=True)], 50),
        "datasets of equal elements",
    ),
}


@pytest.mark.parametrize(("make", "said"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(WuShardError, match=said):
        make()

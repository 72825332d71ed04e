"""Who is behind reads a worker's shards as they were before Python code wrote them."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf

from tf_wu_shard.storage import earlier_shards
from tf_wu_shard.storage.worker_shards import OwnShards, WriteCounts
from tf_wu_shard.tensorflow_private import resources


@pytest.fixture
def counts() -> WriteCounts:
    return WriteCounts()


def shards_of(counts: WriteCounts, seconds: float = 60.0) -> OwnShards:
    """Two replicas' shards, all zeros."""
    made = tuple(resources.Shard((3,), tf.float32, "/device:CPU:0") for _ in range(2))
    resources.refill([shard.handle for shard in made], [tf.zeros(3)] * 2)
    return OwnShards("m", made, counts, seconds)


def write(own: OwnShards, number: float) -> None:
    for place, shard in enumerate(own.shards):
        with own.writing(place):
            shard.assign_add(tf.fill([3], number))


def seen(own: OwnShards, writes: int | None = None) -> tuple[int, bytes]:
    """What a reader gets that has seen so many writes."""
    found = own.snapshot(writes)
    assert found is not None
    return found.writes, found.shard


def content(number: float) -> bytes:
    return tf.fill([6], number).numpy().tobytes()


def test_each_reader_gets_the_shards_of_its_own_moment(counts: WriteCounts) -> None:
    own = shards_of(counts)
    write(own, 1.0)
    write(own, 2.0)
    assert seen(own, 0) == (0, content(0.0))
    assert seen(own, 1) == (1, content(1.0))
    assert seen(own, 2) == seen(own) == (2, content(3.0))
    # What nobody has kept is as it is now, and the reader asks again.
    assert seen(own, 7) == (2, content(3.0))


def test_one_that_is_behind_reads_while_a_write_is_under_way(counts: WriteCounts) -> None:
    own = shards_of(counts)
    with own.writing(0):
        assert own.snapshot() is None
        assert seen(own, 0) == (0, content(0.0))


def test_a_function_that_asks_before_it_writes_keeps_what_it_asked_for(counts: WriteCounts) -> None:
    own = shards_of(counts)
    for number in range(3):
        own.keep()
        counts.begun.assign_add(tf.constant(1, tf.int64))
        # A write is under way: there is nothing to keep.
        own.keep()
        own.shards[0].assign_add(tf.fill([3], 1.0))
        own.shards[1].assign_add(tf.fill([3], 1.0))
        counts.ended.assign_add(tf.constant(1, tf.int64))
        assert seen(own, number) == (number, content(float(number)))
    assert seen(own, 0) == (0, content(0.0)) and seen(own) == (3, content(3.0))


def test_the_last_few_are_kept_for_some_time(counts: WriteCounts) -> None:
    own = shards_of(counts)
    for _ in range(6):
        write(own, 1.0)
    assert [seen(own, writes)[0] for writes in range(6)] == [6, 6, 2, 3, 4, 5]
    short = shards_of(counts, 0.05)
    write(short, 1.0)
    deadline = time.monotonic() + 10
    while seen(short, 0)[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen(short, 0) == (1, content(1.0))
    # Those that are kept for longer are not dropped with them.
    assert seen(own, 5)[0] == 5
    assert earlier_shards._sweeper is not None

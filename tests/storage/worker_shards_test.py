"""A slot's shards of all workers are put in order, and its own are handed out between writes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.layout import flat_layout
from tf_wu_shard.storage.parts import cut, join
from tf_wu_shard.storage.worker_shards import OwnShards, WorkerShards, WriteCounts
from tf_wu_shard.tensorflow_private import resources
from tf_wu_shard.workers.shard_exchange import Snapshot

pytestmark = pytest.mark.usefixtures("logical_cpus")

SHAPE = (5, 29)
VALUE = np.arange(145, dtype=np.float32).reshape(SHAPE)

# Two workers of two replicas each: three shards of 48 elements, and a last one of one.
LAYOUT = flat_layout(SHAPE, 4, 4)


def own_of(worker: int) -> OwnShards:
    """What a worker keeps of the value."""
    parts = [cut(tf.constant(VALUE), LAYOUT, 2 * worker + place) for place in range(2)]
    shards = tuple(resources.Shard(part.shape, tf.float32, "/device:CPU:0") for part in parts)
    resources.refill([shard.handle for shard in shards], parts)
    return OwnShards("m:0", shards, WriteCounts(), 60.0)


class Cluster:
    """A worker's cluster, of which the first in the group has rank 0."""

    def __init__(self, rank: int, shards: list[bytes]) -> None:
        self.rank = rank
        self.sources: dict[str, Callable[[int | None], Snapshot | None]] = {}
        self.dropped: list[str] = []
        self._shards = shards

    def offer(self, variable: str, source: Callable[[int | None], Snapshot | None]) -> str:
        self.sources[variable] = source
        return f"{variable}#1"

    def drop(self, name: str) -> None:
        self.dropped.append(name)

    def shards(self, name: str) -> list[bytes]:
        assert name == "m:0#1"
        return self._shards


def content(own: OwnShards) -> Snapshot:
    found = own.snapshot()
    assert found is not None
    return found


def step(counts: WriteCounts, ended: bool = True) -> None:
    """What a function that writes counts."""
    counts.begun.assign_add(tf.constant(1, tf.int64))
    if ended:
        counts.ended.assign_add(tf.constant(1, tf.int64))


def test_writes_are_settled_once_as_many_have_ended_as_were_begun() -> None:
    counts = WriteCounts()
    assert counts.settled() == 0
    step(counts)
    assert counts.settled() == 1
    step(counts, ended=False)
    assert counts.settled() is None


def test_all_own_shards_are_handed_out_after_each_write_by_functions_or_python() -> None:
    own = own_of(0)
    assert content(own) == Snapshot(0, VALUE.reshape(-1)[:96].tobytes())
    step(own.counts)
    for place, shard in enumerate(own.shards):
        with own.writing(place):
            assert own.snapshot() is None
            shard.assign_add(tf.ones(shard.value().shape))
        # Until the other shard is written as often, there is no moment to hand out.
        assert (own.snapshot() is None) is (place == 0)
    assert content(own) == Snapshot(2, (VALUE.reshape(-1)[:96] + 1).tobytes())


def test_a_write_that_failed_has_ended() -> None:
    own = own_of(0)
    for place in range(2):
        with pytest.raises(ValueError, match="of another shape"), own.writing(place):
            raise ValueError("of another shape")
    assert content(own).writes == 1


def test_all_workers_shards_make_up_the_value_in_the_order_of_the_group() -> None:
    shards = [content(own_of(worker)).shard for worker in range(2)]
    cluster: Any = Cluster(1, shards)
    made = WorkerShards(LAYOUT, cluster, own_of(1))
    assert made.first == 2
    found = made.values()
    assert [shard.shape for shard in found] == [(48,), (48,), (48,), (1,)]
    np.testing.assert_array_equal(join(found, LAYOUT), VALUE)


def test_the_own_shards_are_offered_under_the_variables_name_until_nobody_has_the_slot() -> None:
    own = own_of(1)
    cluster: Any = Cluster(1, [])
    made = WorkerShards(LAYOUT, cluster, own)
    (source,) = cluster.sources.values()
    assert [*cluster.sources] == ["m:0"] and source(None) == content(own)
    assert made.counts is own.counts
    with made.writing(0):
        assert source(None) is None
        assert cluster.dropped == []
    del made
    gc.collect()
    assert cluster.dropped == ["m:0#1"]

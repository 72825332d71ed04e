"""A reader gets all shards of one moment, asks again while one is written, and names the silent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.workers.local_store import LocalStore
from tf_wu_shard.errors import StorageError
from tf_wu_shard.workers import messages, shard_answers
from tf_wu_shard.workers.request_log import RequestLog
from tf_wu_shard.workers.shard_answers import Excuse, Snapshot
from tf_wu_shard.workers.shard_reader import ShardReader, Silence, answer_key

BUSY = Excuse("busy", "is writing it")


class Table(LocalStore):
    """A table in which the others' answers stand already."""

    def answer(self, request: int, worker: int, answer: Snapshot | Excuse) -> None:
        key = answer_key(request, worker)
        assert shard_answers.claim(self, key)
        shard_answers.leave(self, key, answer)

    @property
    def requests(self) -> list[dict[str, object]]:
        """What was asked."""
        types = {"kind": str, "worker": int, "slot": str, "writes": int}
        texts = [self._texts[key] for key in self.taken_keys() if key.startswith("requests/")]
        return [messages.read(text, types) for text in texts]

    @property
    def answers(self) -> list[str]:
        """What is left of answers."""
        return [key for key in self.taken_keys() if key.startswith("answers/")]


@pytest.fixture
def table() -> Table:
    return Table()


def reader(
    table: Table, *others: int, seconds: float = 5.0, silence: Silence | None = None
) -> ShardReader:
    """Worker 1's."""
    return ShardReader(table, RequestLog(table), 1, others, seconds, silence or Silence())


def own(writes: int = 3) -> Callable[[str, float], Snapshot | Excuse]:
    return lambda name, seconds: Snapshot(writes, b"own")


def refused(
    asking: ShardReader, copy: Callable[[str, float], Snapshot | Excuse] | None = None
) -> str:
    with pytest.raises(StorageError, match="'m' cannot be gathered by worker 1 alone") as raised:
        asking.read("m", copy or own())
    return str(raised.value)


def test_shards_come_by_worker_and_nothing_of_them_stays(table: Table) -> None:
    table.answer(0, 0, Snapshot(3, b"first"))
    table.answer(0, 2, Snapshot(3, b"last"))
    assert reader(table, 0, 2).read("m", own()) == [b"first", b"own", b"last"]
    assert table.requests == [{"kind": "read", "worker": 1, "slot": "m", "writes": 3}]
    assert table.answers == []


def test_a_worker_alone_asks_nobody(table: Table) -> None:
    assert reader(table).read("m", own()) == [b"own"]
    assert table.taken_keys() == ()


def test_a_shard_that_is_being_written_is_asked_for_again(table: Table) -> None:
    table.answer(0, 0, BUSY)
    table.answer(1, 0, Snapshot(4, b"earlier"))
    table.answer(2, 0, Snapshot(5, b"now"))
    copies: list[Snapshot | Excuse] = [
        BUSY,
        Snapshot(3, b"a"),
        Snapshot(5, b"b"),
        Snapshot(5, b"c"),
    ]
    found = reader(table, 0).read("m", lambda name, seconds: copies.pop(0))
    # Once this worker was busy, once the other was, and once they were at different writes.
    assert found == [b"now", b"c"] and copies == []
    assert [asked["writes"] for asked in table.requests] == [3, 5, 5]
    assert table.answers == []


def test_a_read_whose_time_is_over_says_who_is_behind_and_who_is_silent(table: Table) -> None:
    table.answer(0, 0, Snapshot(4, b"first"))
    table.answer(0, 2, Snapshot(3, b"last"))
    said = refused(reader(table, 0, 2, seconds=0.004))
    assert "different numbers of writes of it (worker 0 4, worker 1 3, worker 2 3)" in said
    assert "raise ShardingOptions.read_seconds" in said
    other = Table()
    other.answer(0, 2, Snapshot(3, b"last"))
    assert "workers 0, 3 did not answer" in refused(reader(other, 0, 2, 3, seconds=0.004))


def test_a_worker_without_a_shard_or_with_a_damaged_one_ends_the_read_at_once(table: Table) -> None:
    table.answer(0, 0, Excuse("unknown", "has no sharded slot of this name"))
    assert ": worker 0 has no sharded slot of this name; " in refused(reader(table, 0, 2))
    failed = Excuse("failed", "could not read it")
    assert "worker 1 could not read it" in refused(reader(table, 0), lambda name, seconds: failed)
    damaged = Table()
    damaged.answer(0, 0, Snapshot(3, b"first"))
    key = f"{answer_key(0, 0)}/piece/0"
    damaged.remove(key)
    damaged.insert(key, "AAAA")
    assert "the shard of worker 0 did not come whole: " in refused(reader(damaged, 0))


def test_whoever_has_ended_or_lost_the_others_is_not_waited_for(table: Table) -> None:
    gone = Silence(gone={2})
    assert "worker 2 ended without waiting" in refused(reader(table, 0, 2, silence=gone))
    lost = Silence(reason="the table has gone")
    said = refused(reader(table, 0, 2, silence=lost))
    assert "this worker exchanges no shards any more: the table has gone" in said
    assert table.taken_keys() == ()

"""A lone reader gets all shards of one moment, or an error that says who is the matter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from tests.workers.local_store import LocalStore
from tests.workers.threads import FailingStore, together
from tf_wu_shard.errors import StorageError
from tf_wu_shard.workers import messages
from tf_wu_shard.workers.shard_exchange import ShardExchange, Snapshot
from tf_wu_shard.workers.store import StoreError


class Slot:
    """A worker's shard, the worker's number as often as the slot was written."""

    def __init__(self, worker: int, writes: int = 1) -> None:
        self.worker = worker
        self.writes = writes
        self.busy = False
        self.asked = 0
        self.keeps = False

    def source(self, seen: int | None) -> Snapshot | None:
        self.asked += 1
        if self.keeps and seen is not None:
            return Snapshot(seen, bytes([self.worker]) * seen)
        return None if self.busy else Snapshot(self.writes, self.shard)

    @property
    def shard(self) -> bytes:
        return bytes([self.worker]) * self.writes


def always(snapshot: Snapshot) -> Callable[[int | None], Snapshot]:
    """A source of a slot that nobody writes."""
    return lambda seen: snapshot


class Cluster:
    """Workers as exchanges over one table, with a slot `m` each."""

    def __init__(self, store: LocalStore, total: int, read_seconds: float = 5.0) -> None:
        self.store = store
        self.slots = [Slot(worker) for worker in range(total)]
        self.workers = [ShardExchange(store, w, total, read_seconds) for w in range(total)]

    def start(self, *absent: int) -> Cluster:
        for worker, slot in zip(self.workers, self.slots, strict=True):
            if slot.worker not in absent:
                worker.offer("m", slot.source)
        return self

    def stop(self) -> None:
        together([partial(worker.leave, 0.01) for worker in self.workers])


def test_a_dropped_slot_is_handed_out_until_all_have_dropped_it(store: LocalStore) -> None:
    cluster = Cluster(store, 2, 0.5).start()
    first, second = cluster.workers
    second.drop("m")
    assert first.read("m") == [b"\0", b"\1"]
    first.drop("m")
    deadline = time.monotonic() + 5
    while second._sources and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(StorageError, match="has no sharded slot of this name"):
        first.read("m")
    cluster.stop()


@pytest.fixture
def store() -> LocalStore:
    return LocalStore()


@pytest.fixture
def three(store: LocalStore) -> Iterator[Cluster]:
    cluster = Cluster(store, 3).start()
    yield cluster
    cluster.stop()


@pytest.fixture
def impatient(store: LocalStore) -> Iterator[Cluster]:
    """Two workers whose reads end after 0.4 seconds."""
    cluster = Cluster(store, 2, read_seconds=0.4).start()
    yield cluster
    cluster.stop()


def _fails(worker: ShardExchange, match: str, name: str = "m") -> str:
    """The words of the error of a read, which ends in its time."""
    started = time.monotonic()
    with pytest.raises(StorageError, match=match) as raised:
        worker.read(name)
    # Reads end after 0.4 seconds; the rest is the machine's.
    assert time.monotonic() - started < 3
    return str(raised.value)


def _comes_true(claim: Callable[[], bool]) -> bool:
    """Whether something is so in a moment."""
    deadline = time.monotonic() + 3
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.01)
    return claim()


def _holds_only(store: LocalStore, keys: set[str]) -> bool:
    """Whether the table holds no other keys than these in a moment."""
    return _comes_true(lambda: set(store.taken_keys()) == keys)


def test_a_lone_reader_gets_all_shards_by_worker(three: Cluster) -> None:
    assert three.workers[1].read("m") == [b"\0", b"\1", b"\2"]


def test_a_read_leaves_nothing_in_the_table(three: Cluster, store: LocalStore) -> None:
    for reader in (0, 1, 1, 2):
        three.workers[reader].read("m")
    assert _holds_only(store, set())


def test_a_shard_of_several_pieces_comes_bit_for_bit(store: LocalStore) -> None:
    random = np.random.default_rng(3)
    # Of four pieces, of one that is just full, and of none.
    shards = [random.bytes(size) for size in (2_500_001, 3 << 18, 0)]
    workers = [ShardExchange(store, worker, 3, 5.0) for worker in range(3)]
    for worker, shard in zip(workers, shards, strict=True):
        worker.offer("m", always(Snapshot(7, shard)))
    assert workers[2].read("m") == shards
    assert workers[0].read("m") == shards
    assert _holds_only(store, set())


def test_one_worker_alone_asks_nobody(store: LocalStore) -> None:
    alone = Cluster(store, 1).start()
    assert alone.workers[0].read("m") == [b"\0"]
    alone.workers[0].leave(5)
    assert store.taken_keys() == ()


def test_concurrent_readers_on_several_workers_and_threads_all_succeed(
    three: Cluster, store: LocalStore
) -> None:
    for slot, worker in zip(three.slots, three.workers, strict=True):
        worker.offer("v", always(Snapshot(2, b"v" + slot.shard)))
    wanted = {"m": [b"\0", b"\1", b"\2"], "v": [b"v\0", b"v\1", b"v\2"]}
    names = [name for _ in range(4) for name in ("m", "v")]
    readers = [partial(worker.read, name) for worker in three.workers for name in names]
    assert together(readers) == [wanted[name] for name in names] * 3
    assert _holds_only(store, set())


def test_a_write_that_never_ends_is_an_error_in_time(impatient: Cluster, store: LocalStore) -> None:
    impatient.slots[1].busy = True
    said = _fails(impatient.workers[0], "worker 1 was writing the slot all the time")
    assert "'m'" in said and "between steps, or raise ShardingOptions.read_seconds" in said
    # Requests that nobody answered in time go with the next one that all answer.
    impatient.slots[1].busy = False
    assert impatient.workers[0].read("m") == [b"\0", b"\1"]
    assert _holds_only(store, set())


def test_a_write_of_the_readers_own_that_never_ends_is_an_error_in_time(
    impatient: Cluster,
) -> None:
    impatient.slots[0].busy = True
    _fails(impatient.workers[0], "worker 0 was writing the slot all the time")


def test_a_write_that_ends_is_waited_for(three: Cluster) -> None:
    three.slots[2].busy = True

    def finish() -> None:
        for slot in three.slots:
            slot.writes = 2
        three.slots[2].busy = False

    threading.Timer(0.1, finish).start()
    assert three.workers[0].read("m") == [b"\0\0", b"\1\1", b"\2\2"]


def test_one_workers_step_in_between_is_read_again(three: Cluster) -> None:
    three.slots[1].writes = 2

    def finish() -> None:
        three.slots[0].writes = three.slots[2].writes = 2

    threading.Timer(0.1, finish).start()
    assert three.workers[0].read("m") == [b"\0\0", b"\1\1", b"\2\2"]
    assert three.slots[1].asked > 1


def test_a_worker_ahead_gives_what_it_has_kept_to_one_behind(impatient: Cluster) -> None:
    ahead = impatient.slots[1]
    ahead.writes, ahead.keeps = 3, True
    assert impatient.workers[0].read("m") == [b"\0", b"\1"]


def test_workers_that_stay_at_different_writes_are_named(impatient: Cluster) -> None:
    impatient.slots[1].writes = 3
    _fails(impatient.workers[0], r"different numbers of writes of it \(worker 0 1, worker 1 3\)")


def test_a_dead_worker_is_named_and_its_request_is_gone_when_it_comes_late(
    store: LocalStore,
) -> None:
    cluster = Cluster(store, 3, read_seconds=0.4).start(1)
    _fails(cluster.workers[0], "worker 1 did not answer")
    _fails(cluster.workers[2], "worker 1 did not answer")
    assert not [key for key in store.taken_keys() if "piece" in key]
    # It follows the requests from the first on, and finds both abandoned.
    cluster.workers[1].offer("m", cluster.slots[1].source)
    assert cluster.workers[0].read("m") == [b"\0", b"\1", b"\2"]
    assert cluster.workers[2].read("m") == [b"\0", b"\1", b"\2"]
    assert cluster.slots[1].asked == 2
    assert _holds_only(store, set())
    cluster.stop()


def test_all_workers_that_are_dead_are_named(store: LocalStore) -> None:
    cluster = Cluster(store, 4, read_seconds=0.2).start(1, 3)
    _fails(cluster.workers[0], "workers 1, 3 did not answer")
    cluster.stop()


def test_an_answer_that_is_late_for_its_reader_is_cleaned_up(store: LocalStore) -> None:
    cluster = Cluster(store, 2, read_seconds=0.2)
    slow = threading.Event()

    def source(seen: int | None) -> Snapshot:
        slow.wait(5)
        return Snapshot(1, b"late")

    cluster.workers[0].offer("m", cluster.slots[0].source)
    cluster.workers[1].offer("m", source)
    _fails(cluster.workers[0], "worker 1 did not answer")
    slow.set()
    assert _holds_only(store, {"requests/0"})
    assert cluster.workers[0].read("m") == [b"\0", b"late"]
    assert _holds_only(store, set())
    cluster.stop()


def test_a_worker_that_has_no_such_slot_says_so(impatient: Cluster, store: LocalStore) -> None:
    impatient.workers[1].withdraw("m")
    impatient.workers[1].withdraw("m")
    _fails(impatient.workers[0], "worker 1 has no sharded slot of this name")
    _fails(impatient.workers[1], "worker 1 has no sharded slot of this name")
    assert _holds_only(store, set())


def test_a_slot_that_another_worker_offers_a_moment_later_is_waited_for(three: Cluster) -> None:
    three.workers[0].offer("v", three.slots[0].source)
    three.workers[2].offer("v", three.slots[2].source)
    late = threading.Timer(0.1, lambda: three.workers[1].offer("v", three.slots[1].source))
    late.start()
    assert three.workers[0].read("v") == [b"\0", b"\1", b"\2"]


def test_a_source_that_raises_is_told_to_the_reader_and_ends_no_thread(impatient: Cluster) -> None:
    def source(seen: int | None) -> Snapshot:
        raise OSError("out of memory")

    impatient.workers[1].offer("m", source)
    _fails(impatient.workers[0], r"worker 1 could not read its shard: OSError\('out of memory'\)")
    impatient.workers[1].offer("m", impatient.slots[1].source)
    assert impatient.workers[0].read("m") == [b"\0", b"\1"]


@pytest.mark.parametrize(
    ("part", "text", "match"),
    [
        ("header", "{", "worker 1 gave an answer that cannot be read: it is no JSON"),
        ("header", messages.write({"excuse": "tired"}), "its excuse is 'tired'"),
        ("piece/0", "AAAA", "did not come whole: its 1 pieces are not the shard that was left"),
        ("piece/0", "A!", "did not come whole: piece 0 of 1 is no base64"),
    ],
)
def test_a_damaged_answer_is_an_error(part: str, text: str, match: str) -> None:
    class DamagingStore(LocalStore):
        def insert(self, key: str, given: str) -> bool:
            return super().insert(key, text if key.endswith(part) else given)

    cluster = Cluster(DamagingStore(), 2, read_seconds=0.4).start()
    _fails(cluster.workers[0], match)
    cluster.stop()


def test_a_worker_that_dies_while_its_shard_comes_is_an_error_in_time() -> None:
    class LosingStore(LocalStore):
        def insert(self, key: str, text: str) -> bool:
            if "piece/1" in key:
                raise StoreError("the service has gone")
            return super().insert(key, text)

    cluster = Cluster(LosingStore(), 2, read_seconds=0.4).start()
    cluster.workers[1].offer("m", always(Snapshot(1, bytes(1_000_000))))
    _fails(cluster.workers[0], "worker 1 did not come whole: piece 1 of 2 did not come within 0.4")
    cluster.stop()


def test_a_shard_that_keeps_coming_is_taken_however_long_that_takes() -> None:
    class SlowStore(LocalStore):
        def insert(self, key: str, text: str) -> bool:
            if "piece/" in key:
                time.sleep(0.08)
            return super().insert(key, text)

    cluster = Cluster(SlowStore(), 2, read_seconds=0.4).start()
    shard = bytes(7_000_000)
    cluster.workers[1].offer("m", always(Snapshot(1, shard)))
    started = time.monotonic()
    assert cluster.workers[0].read("m") == [b"\0", shard]
    assert time.monotonic() - started > 0.4
    assert _holds_only(cluster.store, set())
    cluster.stop()


def test_a_reader_does_not_wait_for_a_slot_that_another_one_waits_for(three: Cluster) -> None:
    three.workers[0].offer("v", three.slots[0].source)
    slow = threading.Event()

    def source(seen: int | None) -> Snapshot:
        slow.wait(5)
        return Snapshot(1, b"slow")

    for worker in three.workers[1:]:
        worker.offer("v", source)
    waiting = threading.Thread(target=three.workers[0].read, args=("v",))
    waiting.start()
    assert _comes_true(lambda: any("claim" in key for key in three.store.taken_keys()))
    assert three.workers[1].read("m") == [b"\0", b"\1", b"\2"]
    assert waiting.is_alive()
    slow.set()
    waiting.join(3)
    assert not waiting.is_alive()


def test_a_damaged_request_is_answered_with_what_is_wrong_and_ends_no_thread(
    three: Cluster, store: LocalStore
) -> None:
    store.insert("requests/0", "{")
    header = store.get("answers/0/1/header", 5)
    assert header is not None and "cannot read the request: it is no JSON" in header
    assert three.workers[2].read("m") == [b"\0", b"\1", b"\2"]


def test_a_worker_that_left_answers_until_the_last_has_left(three: Cluster) -> None:
    leaving = [threading.Thread(target=three.workers[w].leave, args=(9.0,)) for w in (1, 2)]
    for thread in leaving:
        thread.start()
    time.sleep(0.05)
    assert three.workers[0].read("m") == [b"\0", b"\1", b"\2"]
    assert all(thread.is_alive() for thread in leaving)
    three.workers[0].leave(9.0)
    for thread in leaving:
        thread.join(3)
        assert not thread.is_alive()
    _fails(three.workers[0], "all workers' scripts have ended")


def test_all_are_told_at_once_who_has_left(store: LocalStore) -> None:
    told: list[list[int]] = [[], [], []]
    workers = [ShardExchange(store, w, 3, 5.0, told[w].append) for w in range(3)]
    for worker in workers:
        worker.offer("m", Slot(0).source)
    leaving = threading.Thread(target=workers[1].leave, args=(9.0,))
    leaving.start()
    assert _comes_true(lambda: told == [[1]] * 3)
    for worker in (workers[0], workers[2]):
        worker.leave(0.01)
    leaving.join(3)
    assert not leaving.is_alive()


def test_a_worker_lingers_no_longer_than_it_was_told(three: Cluster) -> None:
    started = time.monotonic()
    three.workers[1].leave(0.1)
    assert 0.1 <= time.monotonic() - started < 2
    # The reader learns of it at once, and not after its five seconds.
    _fails(three.workers[0], "worker 1 ended without waiting any longer for this one")
    assert time.monotonic() - started < 4


def test_a_worker_that_never_offered_anything_lets_the_others_go(store: LocalStore) -> None:
    cluster = Cluster(store, 2).start(1)
    started = time.monotonic()
    cluster.workers[1].leave(9.0)
    cluster.workers[0].leave(9.0)
    assert time.monotonic() - started < 3


def test_a_table_that_goes_away_ends_the_thread_and_the_next_read_says_why() -> None:
    store = FailingStore()
    cluster = Cluster(store, 2).start()
    assert cluster.workers[0].read("m") == [b"\0", b"\1"]
    store.fail()
    thread = cluster.workers[0]._thread
    assert thread is not None
    thread.join(3)
    assert not thread.is_alive()
    _fails(cluster.workers[0], "could not be reached: the service has gone")
    cluster.workers[0].leave(9.0)


def test_a_table_that_goes_away_in_the_middle_of_a_read_is_an_error() -> None:
    class BreakingStore(LocalStore):
        def insert(self, key: str, text: str) -> bool:
            if key.startswith("requests/"):
                raise StoreError("the service has gone")
            return super().insert(key, text)

    cluster = Cluster(BreakingStore(), 2).start()
    _fails(cluster.workers[0], "the workers' table cannot be reached: the service has gone")

"""A worker's last words are heard by all others, those of worker 0 even when it is gone."""

from __future__ import annotations

import time

from tests.workers.local_store import LocalStore
from tests.workers.threads import FailingStore
from tf_wu_shard.workers.farewells import Farewells


def _heard(farewells: Farewells, worker: int) -> int | None:
    """What a worker said, in a moment at the latest."""
    deadline = time.monotonic() + 3
    while farewells.of(worker) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return farewells.of(worker)


def test_all_hear_what_a_worker_says_and_nothing_of_one_that_says_nothing() -> None:
    store = LocalStore()
    workers = [Farewells(store, rank) for rank in range(3)]
    workers[1].say(12)
    workers[0].say(13)
    assert [_heard(worker, 1) for worker in workers] == [12] * 3
    assert [_heard(worker, 0) for worker in workers] == [13] * 3
    assert [worker.of(2) for worker in workers] == [None] * 3


def test_the_first_words_of_a_worker_stay() -> None:
    store = LocalStore()
    for begun in (12, 13):
        Farewells(store, 1).say(begun)
    assert Farewells(store, 2).of(1) == 12


def test_worker_0_is_heard_when_its_table_is_gone_and_others_are_not() -> None:
    store = FailingStore()
    workers = [Farewells(store, rank) for rank in range(3)]
    workers[0].say(5)
    workers[2].say(5)
    assert _heard(workers[1], 0) == 5
    store.fail()
    assert workers[1].of(0) == 5
    assert workers[1].of(2) is None


def test_words_that_cannot_be_read_say_nothing() -> None:
    store = LocalStore()
    hears = Farewells(store, 2)
    for worker in (0, 1):
        store.insert(f"farewells/{worker}", '{"format": 1, "begun": "many"}')
    time.sleep(0.05)
    assert hears.of(0) is None
    assert hears.of(1) is None

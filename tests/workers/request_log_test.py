"""All workers follow the same entries in the same order, and passed ones go."""

from __future__ import annotations

import threading
import time
from functools import partial

from tests.workers.local_store import LocalStore
from tests.workers.threads import together
from tf_wu_shard.workers.request_log import RequestLog


def test_concurrent_writers_get_numbers_of_their_own_that_all_follow_in_order() -> None:
    store = LocalStore()
    logs = [RequestLog(store) for _ in range(3)]
    writers = [partial(log.append, str(n)) for n, log in enumerate(logs * 4)]
    assert sorted(together(writers)) == list(range(12))
    followed = [[log.follow() for _ in range(12)] for log in logs]
    assert followed[0] == followed[1] == followed[2]
    assert [number for number, _ in followed[0]] == list(range(12))


def test_an_entry_stays_until_its_writer_and_the_others_have_passed_it() -> None:
    store = LocalStore()
    writer, other = RequestLog(store), RequestLog(store)
    assert writer.append("a") == 0
    other.follow()
    writer.release(0)
    assert store.taken_keys() == ("requests/0",)
    writer.follow()
    assert store.taken_keys() == ()


def test_the_number_of_an_entry_that_is_gone_is_not_used_again() -> None:
    store = LocalStore()
    logs = RequestLog(store), RequestLog(store)
    for number in range(5):
        writer = logs[number % 2]
        assert writer.append("a") == number
        assert [log.follow() for log in logs] == [(number, "a")] * 2
        writer.release(number)
    assert store.taken_keys() == ()


def test_an_entry_that_nobody_released_goes_with_a_later_one() -> None:
    store = LocalStore()
    log = RequestLog(store)
    log.append("abandoned")
    log.append("answered")
    log.follow()
    log.follow()
    log.release(1)
    assert store.taken_keys() == ()


def test_a_follower_that_starts_late_finds_all_entries() -> None:
    store = LocalStore()
    log = RequestLog(store)
    log.append("a")
    log.follow()
    log.append("b")
    late = RequestLog(store)
    assert [late.follow(), late.follow()] == [(0, "a"), (1, "b")]


def test_a_writer_holds_its_own_follower_back_while_it_looks_for_a_number() -> None:
    # Else its entry could take the number of one that went meanwhile, and nobody would see it.
    class SlowStore(LocalStore):
        def insert(self, key: str, text: str) -> bool:
            time.sleep(0.1)
            return super().insert(key, text)

    slow, fast = SlowStore(), LocalStore()
    slow._texts, slow._changed = fast._texts, fast._changed
    writer, other = RequestLog(slow), RequestLog(fast)
    follower = threading.Thread(target=writer.follow)
    follower.start()
    written: list[int] = []
    writing = threading.Thread(target=lambda: written.append(writer.append("mine")))
    writing.start()
    assert other.append("theirs") == 0
    other.follow()
    follower.join()
    other.release(0)
    writing.join()
    assert written == [1]

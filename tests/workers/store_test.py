"""The table takes a text once, waits for one, and forgets all below a key."""

from __future__ import annotations

import math
import threading
import time
from functools import partial

from tests.workers.local_store import LocalStore
from tests.workers.threads import together
from tf_wu_shard.workers.store import wait_for


def test_a_key_takes_one_text() -> None:
    store = LocalStore()
    inserted = together([partial(store.insert, "key", text) for text in "abcd"])
    assert sorted(inserted) == [False, False, False, True]
    assert store.get("key", 0) == "abcd"[inserted.index(True)]


def test_a_text_that_does_not_come_is_none_after_its_seconds() -> None:
    started = time.monotonic()
    assert LocalStore().get("key", 0.05) is None
    assert 0.04 < time.monotonic() - started < 2


def test_a_wait_without_end_ends_when_the_text_comes() -> None:
    store = LocalStore()
    threading.Timer(0.05, lambda: store.insert("key", "text")).start()
    assert store.get("key", math.inf) == "text"


def test_removing_a_key_removes_what_is_below_it_alone() -> None:
    store = LocalStore()
    for key in ("a", "a/b", "a/b/c", "ab", "b"):
        store.insert(key, "")
    store.remove("a")
    store.remove("missing")
    assert store.taken_keys() == ("ab", "b")
    assert store.insert("a", "again")


def test_a_wait_looks_once_after_its_deadline() -> None:
    store = LocalStore()
    store.insert("key", "text")
    assert wait_for(store, "key", time.monotonic() - 1, lambda: True) == "text"
    assert wait_for(store, "other", time.monotonic() - 1, lambda: False) is None


def test_a_wait_ends_when_it_is_told_to_stop() -> None:
    started = time.monotonic()
    assert wait_for(LocalStore(), "key", started + 9, lambda: True) is None
    assert time.monotonic() - started < 2

"""A shard left in the table is taken whole or not at all, and none stays that nobody takes."""

from __future__ import annotations

import time

import pytest

from tests.workers.local_store import LocalStore
from tf_wu_shard.workers import messages, shard_answers
from tf_wu_shard.workers.messages import MessageError
from tf_wu_shard.workers.shard_answers import (
    Excuse,
    ShardHeader,
    Snapshot,
    await_header,
    claim,
    give_up,
    leave,
    take,
)

KEY = "answers/0"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr(shard_answers, "_PIECE_BYTES", 3)
    return LocalStore()


def header(store: LocalStore, seconds: float = 0.0) -> ShardHeader | Excuse | None:
    return await_header(store, KEY, time.monotonic() + seconds, lambda: False)


def taken(store: LocalStore) -> bytes:
    found = header(store)
    assert isinstance(found, ShardHeader)
    return take(store, KEY, found, 0.0)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 300])
def test_a_shard_of_any_size_comes_back_and_leaves_nothing(store: LocalStore, size: int) -> None:
    shard = bytes(number % 251 for number in range(size))
    assert claim(store, KEY)
    leave(store, KEY, Snapshot(7, shard))
    found = header(store)
    assert found == ShardHeader(7, -(-size // 3))
    assert taken(store) == shard and store.taken_keys() == ()


@pytest.mark.parametrize("kind", ["busy", "unknown", "failed"])
def test_an_excuse_is_read_as_it_was_given(
    store: LocalStore, kind: shard_answers.ExcuseKind
) -> None:
    leave(store, KEY, Excuse(kind, "is at work"))
    assert header(store) == Excuse(kind, "is at work")


def test_an_answer_that_does_not_come_is_none(store: LocalStore) -> None:
    assert header(store, 0.01) is None


def test_a_reader_that_gave_up_first_is_not_answered(store: LocalStore) -> None:
    give_up(store, KEY)
    assert not claim(store, KEY) and store.taken_keys() == ()


def test_a_reader_that_gives_up_after_the_claim_gets_nothing_left_behind(store: LocalStore) -> None:
    assert claim(store, KEY)
    give_up(store, KEY)
    leave(store, KEY, Snapshot(1, b"12345678"))
    assert store.taken_keys() == ()


def test_a_reader_that_gives_up_between_two_pieces_gets_nothing_left_behind(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = store.insert

    def giving_up(key: str, text: str) -> bool:
        if key.endswith("piece/1"):
            give_up(store, KEY)
        return insert(key, text)

    assert claim(store, KEY)
    monkeypatch.setattr(store, "insert", giving_up)
    leave(store, KEY, Snapshot(1, b"12345678"))
    assert store.taken_keys() == ()


def test_a_reader_that_gives_up_after_all_came_cleans_up(store: LocalStore) -> None:
    assert claim(store, KEY)
    leave(store, KEY, Snapshot(1, b"12345678"))
    give_up(store, KEY)
    assert store.taken_keys() == ()


def test_pieces_that_are_missing_or_damaged_are_no_shard(store: LocalStore) -> None:
    for text, words in (
        (None, "piece 1 of 3 did not come"),
        ("*", "piece 1 of 3 is no base64"),
        ("AAAA", "are not the shard that was left"),
    ):
        leave(store, KEY, Snapshot(1, b"12345678"))
        store.remove(f"{KEY}/piece/1")
        if text is not None:
            store.insert(f"{KEY}/piece/1", text)
        with pytest.raises(MessageError, match=words):
            taken(store)
        store.remove(KEY)


def test_an_excuse_of_no_known_kind_is_damaged(store: LocalStore) -> None:
    store.insert(f"{KEY}/header", messages.write({"excuse": "odd", "reason": "x"}))
    with pytest.raises(MessageError, match="its excuse is 'odd'"):
        header(store)

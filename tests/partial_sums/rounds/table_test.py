"""Where workers say that a round has started, and what they answer of it."""

from __future__ import annotations

import pytest

from tests.workers.local_store import LocalStore
from tf_wu_shard.partial_sums.rounds import table as table_module
from tf_wu_shard.partial_sums.rounds.table import RoundTable
from tf_wu_shard.workers.store import StoreError


class _Counting(LocalStore):
    """A table that knows its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: set[str] = set()

    def insert(self, key: str, text: str) -> bool:
        self.keys.add(key)
        return super().insert(key, text)

    def remove(self, key: str) -> None:
        self.keys = {one for one in self.keys if not one.startswith(f"{key}/")}
        super().remove(key)


def test_rounds_of_long_ago_are_removed() -> None:
    store = _Counting()
    table = RoundTable(store, "weights")
    for number in range(1000):
        table.start(number)
        table.wait_for(number)
    assert len(store.keys) < 200


def test_what_the_slowest_may_still_ask_for_is_kept() -> None:
    store = _Counting()
    table = RoundTable(store, "weights", max_staleness=150)
    for number in range(1000):
        table.start(number)
        table.say(number, 0, True)
        if number >= 150:
            assert table.ask(number - 150, 0)
    assert len(store.keys) < 2 * 400


def test_a_worker_says_of_a_round_whether_it_has_a_batch() -> None:
    table = RoundTable(LocalStore(), "weights")
    table.say(3, 0, True)
    table.say(3, 1, False)
    table.start(3)
    assert table.ask(3, 0)
    assert not table.ask(3, 1)


def test_who_has_left_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "_SECONDS_BETWEEN_LOOKS", 0.01)
    left: set[int] = set()
    table = RoundTable(LocalStore(), "weights", has_left=left.__contains__)
    table.say(3, 1, True)
    left |= {1, 2}
    assert table.ask(3, 1)
    with pytest.raises(StoreError, match="the program of worker 2 has ended"):
        table.ask(3, 2)

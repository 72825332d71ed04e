"""Where workers say that a round has started, and who starts one."""

from __future__ import annotations

import collections

import pytest

from tf_wu_shard.partial_sums.rounds import table as table_module
from tf_wu_shard.partial_sums.rounds.starts import may_start
from tf_wu_shard.partial_sums.rounds.table import RoundTable
from tf_wu_shard.workers.store import LocalStore, StoreError


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


def test_one_worker_starts_a_round_of_the_majority_and_each_as_many() -> None:
    starts = [
        [worker for worker in range(4) if may_start("majority", 7, number, worker, 4)]
        for number in range(4000)
    ]
    assert all(len(one) == 1 for one in starts)
    counts = collections.Counter(worker for (worker,) in starts)
    # Of 4,000 even draws a count is 1,000 give or take 27; five times that is never seen.
    assert all(abs(count - 1000) < 137 for count in counts.values())
    other = [may_start("majority", 8, number, 0, 4) for number in range(4000)]
    assert other != [0 in one for one in starts]


def test_any_worker_starts_a_solo_round() -> None:
    assert all(
        may_start("solo", 7, number, worker, 4) for number in range(9) for worker in range(4)
    )


def test_who_has_left_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "_SECONDS_BETWEEN_LOOKS", 0.01)
    left: set[int] = set()
    table = RoundTable(LocalStore(), "weights", has_left=left.__contains__)
    table.say(3, 1, True)
    left |= {1, 2}
    assert table.ask(3, 1)
    with pytest.raises(StoreError, match="the program of worker 2 has ended"):
        table.ask(3, 2)

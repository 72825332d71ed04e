"""A walk yields each thing once, and asks what follows it only if the walk goes on."""

from __future__ import annotations

from itertools import islice

from tf_wu_shard.reachable import reachable

NEIGHBOURS = {"a": "bc", "b": "d", "c": "db", "d": "a", "e": "a"}


def test_each_thing_comes_once_however_many_lead_to_it() -> None:
    found = list(reachable("a", NEIGHBOURS.__getitem__))
    assert sorted(found) == ["a", "b", "c", "d"] and found[0] == "a"
    assert sorted(reachable("eab", NEIGHBOURS.__getitem__)) == ["a", "b", "c", "d", "e"]


def test_a_walk_that_is_left_asks_nothing_more() -> None:
    asked: list[int] = []

    def following(number: int) -> list[int]:
        asked.append(number)
        return [number + 1]

    assert list(islice(reachable([1], following), 3)) == [1, 2, 3]
    assert asked == [1, 2]

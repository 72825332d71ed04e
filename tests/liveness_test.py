"""Whether an object lives is known although cycles keep it, mostly without a full collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tf_wu_shard.liveness import living


class Node:
    """Holds others, and may be referred to weakly."""

    def __init__(self, *held: Any) -> None:
        self.held = list(held)


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The full collections that were made; there are no others meanwhile."""
    made: list[str] = []
    collect = gc.collect

    def counted() -> int:
        made.append("full")
        return collect()

    gc.disable()
    monkeypatch.setattr(gc, "collect", counted)
    yield made
    gc.enable()


def _cycle(*held: Any) -> weakref.ref[Node]:
    """Two objects that hold each other, and one of them others; nothing holds the two."""
    first, second = Node(*held), Node()
    first.held.append(second)
    second.held.append(first)
    return weakref.ref(first)


def test_what_a_cycle_alone_keeps_does_not_live(collections: list[str]) -> None:
    inner = _cycle()
    outer = _cycle(inner())
    assert inner() is not None
    assert living([inner, outer]) == []
    assert not collections


def test_what_a_variable_keeps_lives() -> None:
    kept, dropped = _cycle(), _cycle()
    holder = kept()
    assert living([dropped, kept]) == [kept]
    del holder
    assert living([kept]) == []


def test_what_something_held_leads_to_lives() -> None:
    innermost = _cycle()
    between = _cycle(innermost())
    # The innermost leads to all of them, so all counts are of references within.
    innermost().held.append(between())  # type: ignore[union-attr]
    holder = [between()]
    assert living([innermost]) == [innermost]
    holder.clear()
    assert living([innermost]) == []


def test_what_the_running_function_leads_to_lives(collections: list[str]) -> None:
    kept = _cycle()
    holder = Node(kept())

    def running() -> Node:
        return holder

    assert living([kept], running) == [kept]
    assert not collections


def test_garbage_that_holds_a_suspect_unknown_to_it_is_collected(collections: list[str]) -> None:
    holder = Node(Node())
    suspect = weakref.ref(holder.held[0])
    holder.held.append(holder)
    del holder
    assert suspect() is not None
    assert living([suspect]) == []
    assert collections == ["full"]


def test_what_is_gone_does_not_live(collections: list[str]) -> None:
    assert living([weakref.ref(Node())]) == []
    assert living([]) == []
    assert not collections


@pytest.mark.parametrize("holder", [dict, list, tuple, set])
def test_any_container_holds(holder: type) -> None:
    suspect = _cycle()
    container = holder([("key", suspect())]) if holder is dict else holder([suspect()])
    assert living([suspect]) == [suspect]
    assert container

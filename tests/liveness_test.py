"""Whether an object lives is known although cycles keep it, mostly without a full collection."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tf_wu_shard import liveness
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


def test_equal_objects_are_told_apart() -> None:
    class Equal(Node):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    kept, dropped = Equal(), Equal()
    dropped.held.append(dropped)
    references = [weakref.ref(dropped), weakref.ref(kept)]
    del dropped
    assert [reference is references[1] for reference in living(references)] == [True]


def test_an_object_that_lies_about_its_class_is_not_asked(collections: list[str]) -> None:
    suspect, gone = _cycle(), Node()
    proxy = weakref.proxy(gone)
    del gone
    suspect().held.append(proxy)  # type: ignore[union-attr]
    del proxy
    assert living([suspect]) == []
    assert not collections


def test_too_many_objects_are_left_to_a_collection(
    collections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "_MOST_OBJECTS", 20)
    kept = _cycle()
    dropped = _cycle(*([Node()] for _ in range(30)))
    holder = kept()
    assert living([dropped, kept]) == [kept]
    assert collections == ["full"]
    # The way from what runs is as long.
    assert living([kept], [[Node()] for _ in range(30)]) == [kept]
    assert len(collections) == 2
    del holder


def test_a_thread_that_moves_a_reference_meanwhile_hides_nothing() -> None:
    """It takes what a task has, drops the task and keeps what it took."""
    kept = _cycle()
    task = Node(kept(), *([] for _ in range(20_000)))
    kept().held.append(task)  # type: ignore[union-attr]
    held: list[Any] = [task]
    del task
    begun, done = threading.Event(), threading.Event()

    def move() -> None:
        begun.wait()
        took = held[0].held[0]
        held[0].held[0] = None
        held.clear()
        done.wait()
        assert took is not None

    thread = threading.Thread(target=move)
    thread.start()
    begun.set()
    found = living([kept])
    done.set()
    thread.join()
    assert found == [kept]


@pytest.mark.parametrize("holder", [dict, list, tuple, set])
def test_any_container_holds(holder: type) -> None:
    suspect = _cycle()
    container = holder([("key", suspect())]) if holder is dict else holder([suspect()])
    assert living([suspect]) == [suspect]
    assert container

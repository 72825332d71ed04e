"""Everything that some things lead to: the walk that most questions about a graph are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reachable(start: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Walks a graph, depth first.

    Args:
        start: Where to begin.
        following: What one thing leads to; asked once of each, after the caller has seen it.

    Yields:
        What `start` leads to, itself included, each thing once.
    """
    pending, seen = list(start), set()
    while pending:
        one = pending.pop()
        if one not in seen:
            seen.add(one)
            yield one
            pending += following(one)

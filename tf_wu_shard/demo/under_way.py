"""What runs in other processes now, so that whoever is interrupted can end all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

_ends: set[Callable[[], None]] = set()


@contextlib.contextmanager
def ended_by(end: Callable[[], None]) -> Iterator[None]:
    """Notes how to end what runs as long as the context is open.

    Args:
        end: Ends it; may be called from any thread, and when it has ended by itself.
    """
    _ends.add(end)
    try:
        yield
    finally:
        _ends.discard(end)


def end_all() -> None:
    """Ends all that runs, in whatever thread; each fails with a `DemoError` there."""
    for end in tuple(_ends):
        end()

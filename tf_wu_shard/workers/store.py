"""The table of texts that worker processes share: what it can do, and one for threads.

Answers: what a table must give (`Store`), and how a wait on it ends early (`wait_for`). It does not
promise that a text is whole or honest; who reads one checks it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from tf_wu_shard.errors import WuShardError

# Who looks at something else meanwhile does not see the text come, for a tenth of a second at the
# cluster's table; and a get that ends without a text may leave a call behind there until its key
# comes. So waits do it rarely.
_WAIT = 0.5


class StoreError(WuShardError, RuntimeError):
    """The table that the workers share cannot be reached, or holds what it cannot hold."""


class Store(Protocol):
    """A table of texts that all workers see alike; any thread may use it.

    Every method may raise `StoreError`: the table cannot be reached.
    """

    def insert(self, key: str, text: str) -> bool:
        """Inserts a text, once for all workers; False when the key is taken."""
        ...

    def get(self, key: str, seconds: float) -> str | None:
        """Reads a text, and waits for one that is not there yet.

        Args:
            key: Its key.
            seconds: How long to wait at most; 0 looks once, `math.inf` waits until it comes.

        Returns:
            The text, or None when it did not come.
        """
        ...

    def remove(self, key: str) -> None:
        """Removes a key and all keys below it, `key/...`; those that are missing are fine."""
        ...


class LocalStore:
    """The table for workers that are threads of one process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._changed = threading.Condition()

    def insert(self, key: str, text: str) -> bool:
        """See `Store.insert`."""
        with self._changed:
            if key in self._texts:
                return False
            self._texts[key] = text
            self._changed.notify_all()
            return True

    def get(self, key: str, seconds: float) -> str | None:
        """See `Store.get`."""
        # A lock cannot wait for longer than this, some hundred years.
        longest = min(seconds, threading.TIMEOUT_MAX)
        with self._changed:
            self._changed.wait_for(lambda: key in self._texts, longest)
            return self._texts.get(key)

    def remove(self, key: str) -> None:
        """See `Store.remove`."""
        with self._changed:
            below = f"{key}/"
            for taken in [k for k in self._texts if k == key or k.startswith(below)]:
                del self._texts[taken]

    def taken_keys(self) -> tuple[str, ...]:
        """All keys that hold a text, sorted."""
        with self._changed:
            return tuple(sorted(self._texts))


def wait_for(store: Store, key: str, deadline: float, stop: Callable[[], bool]) -> str | None:
    """Waits for a text until a deadline, or until something else makes it pointless.

    Args:
        store: The table.
        key: Whose text to wait for; it is looked for once even after the deadline.
        deadline: In seconds of `time.monotonic`.
        stop: Asked between waits, after half a second at the latest; True ends the wait.

    Returns:
        The text, or None when it did not come.

    Raises:
        StoreError: The table cannot be reached.
    """
    while True:
        left = deadline - time.monotonic()
        text = store.get(key, max(0.0, min(left, _WAIT)))
        if text is not None or left <= _WAIT or stop():
            return text

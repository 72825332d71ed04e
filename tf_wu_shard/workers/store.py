"""The table of texts that worker processes share: what it can do.

Answers: what a table must give (`Store`), and how a wait on it ends early (`wait_for`). It does not
promise that a text is whole or honest; who reads one checks it.
"""

from __future__ import annotations

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

"""One numbered list of entries that every worker writes to and follows in the same order.

Entry n is the text under `requests/<n>`. A key takes one text, so writers that want the same number
get different ones. The list does not grow without bound: an entry goes once all workers have passed
it. No number is used twice, and nobody waits for one that is gone, because

* an entry goes only after this worker has passed it and the others have, which they show by an
  answer to it; a worker that has not begun to follow has answered nothing, so it finds all there;
* a writer begins at the first number that its own worker has not passed, and holds its worker there
  meanwhile: none of the numbers it tries can have gone.

It does not promise that a worker whose process was started anew can follow: it would begin at 0.
"""

from __future__ import annotations

import math
import threading

from tf_wu_shard.workers.store import Store


class RequestLog:
    """One worker's place in the list; any thread may write, one thread follows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._position = 0
        # Entries of this worker that are still there, and up to where all others have come.
        self._own: set[int] = set()
        self._passed_by_others = -1
        self._lock = threading.Lock()

    def append(self, text: str) -> int:
        """Writes an entry at the end.

        Args:
            text: The entry.

        Returns:
            Its number.

        Raises:
            StoreError: The table cannot be reached.
        """
        with self._lock:
            number = self._position
            while not self._store.insert(_key(number), text):
                number += 1
            self._own.add(number)
            return number

    def follow(self) -> tuple[int, str]:
        """Waits for the next entry, however long, and passes it.

        Returns:
            Its number and its text.

        Raises:
            StoreError: The table cannot be reached.
        """
        text = None
        while text is None:
            text = self._store.get(_key(self._position), math.inf)
        with self._lock:
            number = self._position
            self._position = number + 1
        self._sweep()
        return number, text

    def release(self, number: int) -> None:
        """Says that all other workers have passed an entry, and so all before it.

        Args:
            number: The entry's.

        Raises:
            StoreError: The table cannot be reached.
        """
        with self._lock:
            self._passed_by_others = max(self._passed_by_others, number)
        self._sweep()

    def _sweep(self) -> None:
        with self._lock:
            passed = min(self._position - 1, self._passed_by_others)
            gone = {number for number in self._own if number <= passed}
            self._own -= gone
        for number in gone:
            self._store.remove(_key(number))


def _key(number: int) -> str:
    return f"requests/{number}"

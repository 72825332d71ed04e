"""A table of texts for workers that are threads of one process."""

from __future__ import annotations

import threading


class LocalStore:
    """A `Store` of one process."""

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

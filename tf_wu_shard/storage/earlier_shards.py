"""Shards as they were before a slot was written, for workers that still read it then.

Every worker makes the same writes, but one is ahead of another, who may be reading the value from
before: where Python code writes, and a function that sums nothing. A step needs no such thing: it
writes when all workers have come to it.

Answers: a slot's shards after so many writes, while they are kept. They are kept for some time, the
last few of them.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

# As many writes in a row may be made before a worker behind has read what was there first.
_MOST = 4

_THREAD = "tf_wu_shard earlier shards"


class EarlierShards:
    """Those of one slot on this worker; any thread may use it."""

    def __init__(self, seconds: float) -> None:
        """Keeps nothing yet.

        Args:
            seconds: How long to keep what is kept.
        """
        self._seconds = seconds
        self._kept: dict[int, tuple[Any, ...]] = {}
        self._lock = threading.Lock()

    def keep(self, writes: int, shards: tuple[Any, ...]) -> None:
        """Keeps shards that are about to be written.

        Args:
            writes: How many writes there were, those of functions included.
            shards: Their values, one tensor for each of the worker's replicas.
        """
        with self._lock:
            self._kept[writes] = shards
            for oldest in sorted(self._kept)[:-_MOST]:
                del self._kept[oldest]
        _drop_later(time.monotonic() + self._seconds, self, writes)

    def after(self, writes: int) -> tuple[Any, ...] | None:
        """The shards after so many writes; None where they are not kept."""
        with self._lock:
            return self._kept.get(writes)

    def drop(self, writes: int) -> None:
        """Forgets the shards after so many writes."""
        with self._lock:
            self._kept.pop(writes, None)


# What is to be dropped, in the order in which it was kept, and the thread that does.
_due: list[tuple[float, weakref.ref[EarlierShards], int]] = []
_changed = threading.Condition()
_sweeper: threading.Thread | None = None


def _drop_later(when: float, shards: EarlierShards, writes: int) -> None:
    global _sweeper
    with _changed:
        _due.append((when, weakref.ref(shards), writes))
        if _sweeper is None:
            _sweeper = threading.Thread(target=_sweep, name=_THREAD, daemon=True)
            _sweeper.start()
        _changed.notify()


def _sweep() -> None:
    """Drops what is due, until nothing is kept any more."""
    global _sweeper
    while True:
        with _changed:
            if not _due:
                _sweeper = None
                return
            when, kept, writes = min(_due, key=lambda due: due[0])
            left = when - time.monotonic()
            if left > 0:
                _changed.wait(left)
                continue
            _due.remove((when, kept, writes))
        shards = kept()
        if shards is not None:
            shards.drop(writes)

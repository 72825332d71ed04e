"""What a worker says when its program ends as programs do: how many collectives it has begun.

It can take part in no more than these, so that whoever has begun more waits for it in vain, and who
has not goes on: perhaps it finishes the last one with others.

Answers: what a worker said. It does not promise that one which said nothing still runs.
"""

from __future__ import annotations

import contextlib
import math
import threading

from tf_wu_shard.workers import messages
from tf_wu_shard.workers.messages import MessageError
from tf_wu_shard.workers.store import Store, StoreError

# It keeps the table, which can be asked no more when it has ended.
_KEEPER = 0

_THREAD = "tf_wu_shard farewell of worker 0"


class Farewells:
    """Those of all workers, as one of them hears them; any of its threads may ask."""

    def __init__(self, store: Store, rank: int) -> None:
        """Begins to wait for what worker 0 says.

        Args:
            store: The table that all workers share.
            rank: The worker's number.
        """
        self._store = store
        self._rank = rank
        self._keepers: int | None = None
        if rank != _KEEPER:
            threading.Thread(target=self._await_keeper, name=_THREAD, daemon=True).start()

    def say(self, begun: int) -> None:
        """Says that this worker's program ends.

        Args:
            begun: How many collectives it has begun.

        Raises:
            StoreError: The table cannot be reached.
        """
        self._store.insert(_key(self._rank), messages.write({"begun": begun}))

    def of(self, worker: int) -> int | None:
        """How many collectives a worker had begun at the end of its program.

        Args:
            worker: Its number.

        Returns:
            What it said; None where it said nothing, or nothing that can be known.
        """
        if worker == _KEEPER != self._rank:
            return self._keepers
        try:
            return _read(self._store.get(_key(worker), 0))
        except StoreError:
            return None

    def _await_keeper(self) -> None:
        with contextlib.suppress(StoreError):
            self._keepers = _read(self._store.get(_key(_KEEPER), math.inf))


def _read(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        begun: int = messages.read(text, {"begun": int})["begun"]
    except MessageError:
        return None
    return begun


def _key(worker: int) -> str:
    return f"farewells/{worker}"

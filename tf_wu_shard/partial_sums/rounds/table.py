"""Where workers say that a round has started: keys at the table that all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable

from tf_wu_shard.workers.store import Store, StoreError

# Keys are removed a block at a time, so that few calls are made for that.
_BLOCK = 64

_YES = "yes"

# Each look that finds nothing leaves a call behind until the key comes, see `worker_cluster.get`.
_SECONDS_BETWEEN_LOOKS = 5.0


class RoundTable:
    """The rounds of one step, see `rounds.Table`."""

    def __init__(
        self,
        store: Store,
        name: str,
        max_staleness: int = 1,
        has_left: Callable[[int], bool] = lambda worker: False,
    ) -> None:
        """Uses the keys below a name.

        Args:
            store: The table.
            name: The same on all workers; no other rounds have it.
            max_staleness: How many sums may wait for a worker.
            has_left: Whether the program of a worker has ended, so that it says nothing more.
        """
        self._has_left = has_left
        self._kept = 1 + math.ceil(max_staleness / _BLOCK)
        self._store = store
        self._name = f"rounds/{name}"

    def start(self, number: int) -> None:
        """Says that a round has started; another worker may have said it.

        Args:
            number: The round's.

        Raises:
            StoreError: The cluster is lost.
        """
        self._store.insert(self._key(number), "started")
        block, place = divmod(number, _BLOCK)
        if not place and block >= self._kept:
            # All workers took part in all rounds before this one, and took the sums of most.
            self._store.remove(f"{self._name}/{block - self._kept}")

    def wait_for(self, number: int) -> None:
        """Waits until one has said so.

        Args:
            number: The round's.

        Raises:
            StoreError: The cluster is lost.
        """
        self._store.get(self._key(number), math.inf)

    def say(self, number: int, worker: int, yes: bool) -> None:
        """Says of a round what the others ask of it, see `contributions.Table`.

        Args:
            number: The round's.
            worker: The worker's number.
            yes: What it answers.

        Raises:
            StoreError: The cluster is lost.
        """
        self._store.insert(self._key(number, worker), _YES if yes else "no")

    def ask(self, number: int, worker: int) -> bool:
        """Waits until a worker has said it.

        Args:
            number: The round's.
            worker: The worker's number.

        Raises:
            StoreError: The cluster is lost, or the program of the worker has ended.
        """
        key = self._key(number, worker)
        is_last, found = False, None
        while found is None:
            # Looked at when nothing came: that takes a tenth of a second.
            found = self._store.get(key, _SECONDS_BETWEEN_LOOKS)
            if found is None and is_last:
                raise StoreError(
                    f"the program of worker {worker} has ended, and this worker waits for it to say"
                    " whether it goes on"
                )
            is_last = found is None and self._has_left(worker)
        return found == _YES

    def _key(self, number: int, worker: int | None = None) -> str:
        key = f"{self._name}/{number // _BLOCK}/{number}"
        return key if worker is None else f"{key}/answer/{worker}"

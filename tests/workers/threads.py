"""Workers that are threads of the test's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tests.workers.local_store import LocalStore
from tf_wu_shard.workers.store import StoreError

Result = TypeVar("Result")

# A worker that hangs fails its test after so long; none takes a tenth of it.
HANGS = 10.0


def together(workers: Sequence[Callable[[], Result]]) -> list[Result]:
    """Runs all at once; their results, in the order of the workers."""
    with ThreadPoolExecutor(len(workers)) as pool:
        return [future.result(HANGS) for future in [pool.submit(worker) for worker in workers]]


class FailingStore(LocalStore):
    """A table that can be reached until `fail` is called; who waits then learns it."""

    def __init__(self) -> None:
        super().__init__()
        self._failed = False

    def fail(self) -> None:
        """Ends the table."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def insert(self, key: str, text: str) -> bool:
        self._check()
        return super().insert(key, text)

    def get(self, key: str, seconds: float) -> str | None:
        with self._changed:
            longest = min(seconds, HANGS)
            self._changed.wait_for(lambda: self._failed or key in self._texts, longest)
            self._check()
            return self._texts.get(key)

    def remove(self, key: str) -> None:
        self._check()
        super().remove(key)

    def _check(self) -> None:
        if self._failed:
            raise StoreError("the service has gone")

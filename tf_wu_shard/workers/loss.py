"""Whether this worker has lost its cluster, and waits that end when it has.

TensorFlow's calls to the workers' table wait for ever when worker 0 is stopped, and no text comes
from a worker that is dead. So each call is made in a thread of its own, and whoever waits for it
waits for the loss as well.

Answers: what a call returns, or that the cluster is lost. It does not promise that a call which was
waited for has ended then: its thread goes with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tf_wu_shard.workers.store import StoreError

Result = TypeVar("Result")

_THREAD = "tf_wu_shard call to the workers' table"


class Loss:
    """One worker's; it is declared once and never taken back. Any thread may use it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the cluster is lost; None while it is not."""
        return self._reason

    def declare(self, reason: str) -> None:
        """Says that the cluster is lost, and ends all waits; the first reason stays.

        Args:
            reason: What happened, as in "the cluster is lost: <reason>".
        """
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def unless_lost(self, call: Callable[[], Result]) -> Result:
        """What a call returns, or raises, if it ends before the cluster is lost.

        Args:
            call: What may take for ever.

        Raises:
            StoreError: The cluster is lost.
        """
        outcome = _Outcome(call)

        def make() -> None:
            outcome.make()
            with self._changed:
                self._changed.notify_all()

        if self._reason is None:
            threading.Thread(target=make, name=_THREAD, daemon=True).start()
            with self._changed:
                self._changed.wait_for(lambda: outcome.is_there or self._reason is not None)
        if outcome.is_there:
            return outcome.result()
        raise StoreError(f"the cluster is lost: {self._reason}")


class _Outcome(Generic[Result]):
    """What came of a call that another thread made."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self.is_there = False

    def make(self) -> None:
        """Makes the call."""
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._error = error
        self.is_there = True

    def result(self) -> Result:
        """What it returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._results[0]

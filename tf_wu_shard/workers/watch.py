"""Notices that another worker is lost, as soon as the system or TensorFlow knows it.

TensorFlow notices a lost worker by a sum that waits for it, or after ten seconds by its heartbeat,
and gives up all collectives of the process; nothing else is told. An all-to-all, which sharded
steps have and others have not, waits for the heartbeat: it keeps its error until all of it has
ended, and what it sends to a dead worker never does. So a thread holds a connection to every other
worker and gives the collectives up when one has ended, once there are sharded steps. It also looks
whether TensorFlow has, and whether a worker does not answer then. Both end all waits at the
workers' table.

A worker that is slow or stopped is not lost before TensorFlow's heartbeat says so. Nor is one
whose program has ended as programs do, unless this one has begun a collective since: others may
still be in the midst of the last one. And where collectives were given up for another reason, such
as an error of a step's own, all workers live and may still read and save.

Answers: nothing; it gives collectives up and declares the loss. It does not promise to notice
anything sooner than TensorFlow does.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from tf_wu_shard.workers.connections import HeldConnections
from tf_wu_shard.workers.farewells import Farewells
from tf_wu_shard.workers.loss import Loss

# How long waits at the table outlive the collectives at most.
_SECONDS_BETWEEN_LOOKS = 0.25

# How long waits outlive them besides, where a worker that was heard of until then stops later.
_SECONDS_BETWEEN_CALLS = 2.0

# For the thread to see that it is to end; calling a worker takes two seconds at most.
_LAST_SECONDS = 3.0

_THREAD = "tf_wu_shard watch over workers"


class Collectives(Protocol):
    """What TensorFlow knows of the workers, and its collectives."""

    def are_given_up(self) -> str | None:
        """Why no collective of this process can succeed any more; None where they can."""
        ...

    def give_up(self, reason: str) -> None:
        """Ends all collectives with an error that gives a reason."""
        ...

    def is_lost(self, worker: int) -> bool:
        """Whether a worker cannot be reached any more, in TensorFlow's opinion."""
        ...

    def answers(self, worker: int) -> bool:
        """Whether a worker answers when TensorFlow calls it."""
        ...

    def begun(self) -> int:
        """How many collectives this worker has begun."""
        ...


class Watch:
    """One worker's."""

    def __init__(
        self,
        others: Sequence[int],
        addresses: Mapping[int, tuple[str, int]],
        collectives: Collectives,
        farewells: Farewells,
        loss: Loss,
    ) -> None:
        """Begins to watch.

        Args:
            others: The other workers' numbers.
            addresses: Their hosts and ports; those that have none here are watched by TensorFlow
                alone.
            collectives: TensorFlow's.
            farewells: What workers said at their end.
            loss: What to declare.
        """
        self._others = others
        self._addresses = addresses
        self._collectives = collectives
        self._farewells = farewells
        self._loss = loss
        self._connections = HeldConnections(addresses)
        self._leaving: collections.deque[int] = collections.deque()
        # How many collectives workers had begun whose programs have ended.
        self._last: dict[int, int] = {}
        # Why TensorFlow has given up collectives, and when workers are called next then.
        self._given_up: str | None = None
        self._next_call = 0.0
        self._guards = False
        self._has_ended = False
        self._thread = threading.Thread(target=self._look, name=_THREAD, daemon=True)
        self._thread.start()

    def guard(self) -> None:
        """From now on collectives are given up where they would wait for a worker that is gone."""
        self._guards = True

    def leaves(self, worker: int) -> None:
        """Says that the program of a worker, or this one's, has ended; any thread may say so."""
        if worker in self._others:
            self._leaving.append(worker)

    def end(self) -> None:
        """Ends it; call it once."""
        self._has_ended = True
        self._connections.wake()
        self._thread.join(_LAST_SECONDS)

    def _look(self) -> None:
        try:
            while not self._has_ended:
                reason = self._died() or self._left_behind()
                if reason is not None and self._guards:
                    self._collectives.give_up(reason)
                reason = reason or self._out_of_reach()
                if reason is not None:
                    self._loss.declare(reason)
                    return
        finally:
            self._connections.close()

    def _died(self) -> str | None:
        """Waits a little for a worker to end without a farewell, and says which has."""
        for worker in self._connections.refused(_SECONDS_BETWEEN_LOOKS):
            # One that ends may answer TensorFlow a little longer, and a proxy refuse by itself.
            if not self._collectives.is_lost(worker):
                self._connections.again(worker)
            elif not self._hears(worker):
                host, port = self._addresses[worker]
                return f"worker {worker} has ended: nobody listens at {host}:{port} any more"
        return None

    def _left_behind(self) -> str | None:
        """Says which worker has left while this one goes on to collectives."""
        while self._leaving:
            self._hears(self._leaving.popleft())
        if not self._last:
            return None
        first = min(self._last, key=self._last.__getitem__)
        if self._collectives.begun() <= self._last[first]:
            return None
        return f"the program of worker {first} has ended, and this worker waits for it"

    def _out_of_reach(self) -> str | None:
        """Says why TensorFlow has given up the collectives if a worker does not answer either."""
        self._given_up = self._given_up or self._collectives.are_given_up()
        if self._given_up is None or time.monotonic() < self._next_call:
            return None
        if self._others and all(self._collectives.answers(worker) for worker in self._others):
            self._next_call = time.monotonic() + _SECONDS_BETWEEN_CALLS
            return None
        return self._given_up

    def _hears(self, worker: int) -> bool:
        """Whether a worker has said that its program ends; what it said is kept."""
        begun = self._farewells.of(worker)
        if begun is not None:
            self._last[worker] = begun
        return begun is not None

"""A lone reader of a sharded slot gets the other workers' shards, without any collective.

Each worker follows the list of requests in a thread and answers each one, in a thread of its own,
with its shard and with how many writes of the slot it has finished. The reader takes shards of
equal counts only, so that they are of one moment, and asks again while a step is under way.

Answers: all shards of a slot, or a `StorageError` that says which worker is the matter. It does not
promise to be fast, as every shard travels as text through the table. `read_seconds` is for silence:
a shard that keeps coming is taken however long that takes.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

from tf_wu_shard.errors import StorageError
from tf_wu_shard.workers import messages, shard_answers
from tf_wu_shard.workers.messages import MessageError
from tf_wu_shard.workers.request_log import RequestLog
from tf_wu_shard.workers.shard_answers import Excuse, Snapshot
from tf_wu_shard.workers.shard_reader import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    ShardReader,
    Silence,
    answer_key,
)
from tf_wu_shard.workers.store import Store, StoreError

__all__ = ["ShardExchange", "Snapshot"]

# Given how many writes a reader has seen, or None.
Source = Callable[[int | None], Snapshot | None]

# A worker waits so long for a write of its own to end, and for a slot that it will have in a
# moment, as workers prepare theirs a little apart; at most this share of a reader's patience, so
# that the reader hears of it.
_LONGEST_WAIT = 1.0
_SHARE_OF_READ = 0.25

# For the thread to see the entry that ends it.
_LAST_SECONDS = 1.0

_THREAD = "tf_wu_shard shard exchange"


class ShardExchange:
    """One worker's side of the exchange; any of its threads may use it."""

    def __init__(
        self,
        store: Store,
        rank: int,
        total: int,
        read_seconds: float,
        leaves: Callable[[int], None] = lambda worker: None,
    ) -> None:
        """Makes the side of a worker; nothing runs before the first offer or read.

        Args:
            store: The table that all workers share.
            rank: The worker's number.
            total: How many workers there are.
            read_seconds: How long a reader waits for the others; the same on all workers.
            leaves: Called with the number of each worker whose script has ended.
        """
        self._store = store
        self._rank = rank
        self._others = [worker for worker in range(total) if worker != rank]
        self._read_seconds = read_seconds
        self._leaves = leaves
        self._log = RequestLog(store)
        self._sources: dict[str, Source] = {}
        self._thread: threading.Thread | None = None
        # By slot, the workers that need it no more.
        self._dropped: dict[str, set[int]] = {}
        self._left: set[int] = set()
        self._silence = Silence()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._reader = ShardReader(
            store, self._log, rank, self._others, read_seconds, self._silence
        )

    def offer(self, name: str, source: Source) -> None:
        """Gives a slot's shard to whoever asks for it from now on.

        Args:
            name: The slot's name, the same on all workers; a second offer replaces the first.
            source: Copies the shard, in any thread: as it was after as many writes as it is called
                with, where it can, else as it is; None while a write of the slot is under way.
        """
        with self._lock:
            self._sources[name] = source
        self._start()

    def drop(self, name: str) -> None:
        """Says that this worker needs a slot no more; its offer ends once none of them does.

        Raises:
            StorageError: The table cannot be reached.
        """
        if not self._others or self._silence.reason is not None:
            self.withdraw(name)
            return
        try:
            self._log.append(messages.write({"kind": "drops", "worker": self._rank, "slot": name}))
        except StoreError as error:
            raise StorageError(
                f"the other workers cannot be told that {name!r} is needed no more: {error}"
            ) from error

    def withdraw(self, name: str) -> None:
        """Ends an offer; a name that is not offered is fine."""
        with self._lock:
            self._sources.pop(name, None)

    def read(self, name: str) -> list[bytes]:
        """Gets all workers' shards of a slot, all after the same number of writes.

        Reads of one worker wait for each other, so that one slot at a time is in memory.

        Args:
            name: The slot's name; this worker offers it, too.

        Returns:
            The shards' bytes, by worker, this one's included.

        Raises:
            StorageError: A worker did not answer within `read_seconds`, has no such slot, or was at
                another write of it all the time.
        """
        with self._reading:
            try:
                self._start()
                return self._reader.read(name, self._copy)
            except StoreError as error:
                raise StorageError(
                    f"the sharded slot {name!r} cannot be gathered, as the workers' table cannot be"
                    f" reached: {error}; when workers have ended, start them all again and restore"
                    " a checkpoint"
                ) from error

    def leave(self, linger_seconds: float) -> None:
        """Says that this worker's script has ended; goes on answering until all have said so.

        Call it once, last. Afterwards a read raises.

        Args:
            linger_seconds: How long to wait for the others' scripts to end.
        """
        if not self._others:
            return
        with self._lock:
            thread = self._thread
            if thread is None:
                self._silence.reason = "its script has ended"
        try:
            if thread is None:
                self._log.append(_departure("gone", self._rank))
                return
            self._log.append(_departure("leaves", self._rank))
            thread.join(linger_seconds)
            if thread.is_alive():
                # It ends the thread here, and tells the others not to wait for answers.
                self._log.append(_departure("gone", self._rank))
                thread.join(_LAST_SECONDS)
        except StoreError:
            # The cluster goes down: nobody is left to answer.
            return

    def _start(self) -> None:
        with self._lock:
            if not self._others or self._thread is not None or self._silence.reason is not None:
                return
            self._thread = threading.Thread(target=self._follow, name=_THREAD, daemon=True)
            self._thread.start()

    # The thread that answers.

    def _follow(self) -> None:
        ended = "all workers' scripts have ended"
        answering: list[threading.Thread] = []
        try:
            while self._rank not in self._silence.gone and len(self._left) <= len(self._others):
                number, text = self._log.follow()
                answer = self._answer_to(text)
                if answer is not None:
                    # A large shard or a long write keeps no other reader waiting.
                    thread = threading.Thread(
                        target=self._answer, args=(number, answer), name=_THREAD, daemon=True
                    )
                    thread.start()
                    answering = [*(one for one in answering if one.is_alive()), thread]
            for thread in answering:
                thread.join()
        except StoreError as error:
            ended = f"the workers' table could not be reached: {error}"
        except BaseException as error:
            ended = f"its thread failed: {error!r}"
            raise
        finally:
            self._silence.reason = ended

    def _answer_to(self, text: str) -> Callable[[], Snapshot | Excuse] | None:
        """What gives this worker's answer to an entry; None for one that wants none."""
        try:
            fields = messages.read(text, {"kind": str, "worker": int, "slot": str})
            if fields["kind"] == "read":
                fields |= messages.read(text, {"writes": int})
        except MessageError as error:
            # Whoever wrote it learns from this answer what is wrong with it.
            damaged = Excuse("failed", f"cannot read the request: {error}")
            return lambda: damaged
        worker, slot = fields["worker"], fields["slot"]
        if fields["kind"] == "read":
            seen = fields["writes"]
            return None if worker == self._rank else lambda: self._copy(slot, seen=seen)
        if fields["kind"] == "drops":
            needless = self._dropped.setdefault(slot, set())
            needless.add(worker)
            if len(needless) > len(self._others):
                self.withdraw(slot)
                del self._dropped[slot]
            return None
        self._left.add(worker)
        self._leaves(worker)
        if fields["kind"] == "gone":
            self._silence.gone.add(worker)
        return None

    def _answer(self, number: int, answer: Callable[[], Snapshot | Excuse]) -> None:
        key = answer_key(number, self._rank)
        # The thread that follows the requests meets the same error, and keeps it.
        with contextlib.suppress(StoreError):
            if shard_answers.claim(self._store, key):
                shard_answers.leave(self._store, key, answer())

    def _copy(
        self, name: str, seconds: float = math.inf, seen: int | None = None
    ) -> Snapshot | Excuse:
        """Copies this worker's own shard; waits for its offer and the end of a write, a moment."""
        patience = min(_LONGEST_WAIT, self._read_seconds * _SHARE_OF_READ, seconds)
        deadline = time.monotonic() + patience
        pause = FIRST_PAUSE
        while True:
            with self._lock:
                source = self._sources.get(name)
            try:
                snapshot = source and source(seen)
            except Exception as error:
                return Excuse("failed", f"could not read its shard: {error!r}")
            if snapshot is not None:
                return snapshot
            if time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        if source is None:
            return Excuse(
                "unknown",
                "has no sharded slot of this name, or has unsharded it; all workers must run the"
                " same program and trace the same functions",
            )
        return Excuse("busy", "was writing the slot all the time, as in a step under way")


def _departure(kind: str, worker: int) -> str:
    return messages.write({"kind": kind, "worker": worker, "slot": ""})

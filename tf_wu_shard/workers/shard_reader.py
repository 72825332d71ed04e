"""The reader of shards: asks all workers until they give theirs of one moment.

Answers: all shards of a slot, or a `StorageError` that says which worker is the matter. It does not
answer other readers, see `shard_exchange`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from tf_wu_shard.errors import StorageError
from tf_wu_shard.workers import messages, shard_answers
from tf_wu_shard.workers.messages import MessageError
from tf_wu_shard.workers.request_log import RequestLog
from tf_wu_shard.workers.shard_answers import Excuse, ShardHeader, Snapshot
from tf_wu_shard.workers.store import Store

# Between two looks at what is not there yet, each twice as long as the one before.
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.25

_WHAT_TO_DO = "read or save it on all workers, between steps, or raise ShardingOptions.read_seconds"


@dataclasses.dataclass
class Silence:
    """Who answers no more; the thread that follows the requests says so, and a reader looks.

    Attributes:
        reason: Why this worker exchanges nothing any more; None while it does.
        gone: The workers whose scripts have ended and that wait for no other.
    """

    reason: str | None = None
    gone: set[int] = dataclasses.field(default_factory=set)


class ShardReader:
    """One worker's reader; one thread at a time uses it."""

    def __init__(
        self,
        store: Store,
        log: RequestLog,
        rank: int,
        others: Sequence[int],
        read_seconds: float,
        silence: Silence,
    ) -> None:
        """Makes the reader of a worker.

        Args:
            store: The table that all workers share.
            log: The requests in it.
            rank: The worker's number.
            others: The others' numbers.
            read_seconds: How long to wait for the others.
            silence: Who answers no more.
        """
        self._store = store
        self._log = log
        self._rank = rank
        self._others = others
        self._read_seconds = read_seconds
        self._silence = silence

    def read(self, name: str, copy: Callable[[str, float], Snapshot | Excuse]) -> list[bytes]:
        """Gets all workers' shards of a slot, all after the same number of writes.

        Args:
            name: The slot's name.
            copy: Copies this worker's own shard, within so many seconds.

        Returns:
            The shards' bytes, by worker, this one's included.

        Raises:
            StorageError: As `ShardExchange.read`.
            StoreError: The table cannot be reached.
        """
        deadline = time.monotonic() + self._read_seconds
        pause = FIRST_PAUSE
        before: str | None = None
        while True:
            answers = self._ask(name, copy, deadline)
            if isinstance(answers, list):
                return answers
            if time.monotonic() + pause >= deadline:
                # The last time may have been too short for an answer; the one before says more.
                earlier = f", and before that: {before}" if before not in (None, answers) else ""
                raise self._error(name, f"{answers}{earlier}")
            before = answers
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _ask(
        self, name: str, copy: Callable[[str, float], Snapshot | Excuse], deadline: float
    ) -> list[bytes] | str:
        """Asks all workers once; text says why another time may do better."""
        own = copy(name, deadline - time.monotonic())
        if isinstance(own, Excuse):
            return self._excuses(name, {self._rank: own})
        if not self._others:
            return [own.shard]
        if self._silence.reason is not None:
            raise self._error(name, self._own_silence)
        if self._silence.gone:
            raise self._error(name, _ended_scripts(sorted(self._silence.gone)))
        number = self._log.append(
            messages.write(
                {"kind": "read", "worker": self._rank, "slot": name, "writes": own.writes}
            )
        )
        headers: dict[int, ShardHeader | Excuse] = {}
        shards = {self._rank: own.shard}
        try:
            for worker in self._others:
                header = self._header(name, number, worker, deadline)
                if header is None:
                    return self._silent(number, worker)
                headers[worker] = header
                if isinstance(header, Excuse) and header.kind != "busy":
                    break
            found = self._of_one_moment(name, own.writes, headers)
            if isinstance(found, str):
                return found
            for worker, shard_header in found.items():
                shards[worker] = self._take(name, number, worker, shard_header)
            return [shards[worker] for worker in sorted(shards)]
        finally:
            self._clear(number, [worker for worker in self._others if worker not in shards])
            if len(headers) == len(self._others):
                self._log.release(number)

    def _header(
        self, name: str, number: int, worker: int, deadline: float
    ) -> ShardHeader | Excuse | None:
        """What a worker says; None when it says nothing until the deadline."""
        key = answer_key(number, worker)
        try:
            header = shard_answers.await_header(
                self._store,
                key,
                deadline,
                lambda: self._silence.reason is not None or worker in self._silence.gone,
            )
        except MessageError as error:
            return Excuse("failed", f"gave an answer that cannot be read: {error}")
        if header is not None:
            return header
        if worker in self._silence.gone:
            raise self._error(name, _ended_scripts([worker]))
        if self._silence.reason is not None:
            raise self._error(name, self._own_silence)
        return None

    def _silent(self, number: int, first: int) -> str:
        """Says who has not answered a request; `first` is the first of them."""
        later = [worker for worker in self._others if worker > first]
        keys = {worker: f"{answer_key(number, worker)}/header" for worker in later}
        silent = [worker for worker in later if self._store.get(keys[worker], 0) is None]
        return f"{_workers([first, *silent])} did not answer"

    def _of_one_moment(
        self, name: str, own_writes: int, headers: Mapping[int, ShardHeader | Excuse]
    ) -> dict[int, ShardHeader] | str:
        """The others' shards, all after as many writes as this worker's; text says why not."""
        excuses = {w: header for w, header in headers.items() if isinstance(header, Excuse)}
        if excuses:
            return self._excuses(name, excuses)
        found = {w: header for w, header in headers.items() if isinstance(header, ShardHeader)}
        writes = {self._rank: own_writes} | {w: header.writes for w, header in found.items()}
        if len(set(writes.values())) == 1:
            return found
        counts = ", ".join(f"worker {worker} {writes[worker]}" for worker in sorted(writes))
        return f"the workers have finished different numbers of writes of it ({counts})"

    def _take(self, name: str, number: int, worker: int, header: ShardHeader) -> bytes:
        key = answer_key(number, worker)
        try:
            return shard_answers.take(self._store, key, header, self._read_seconds)
        except MessageError as error:
            raise self._error(
                name, f"the shard of worker {worker} did not come whole: {error}"
            ) from error

    @property
    def _own_silence(self) -> str:
        return f"this worker exchanges no shards any more: {self._silence.reason}"

    def _excuses(self, name: str, excuses: Mapping[int, Excuse]) -> str:
        said = "; ".join(f"worker {worker} {excuses[worker].reason}" for worker in sorted(excuses))
        if any(excuse.kind != "busy" for excuse in excuses.values()):
            raise self._error(name, said)
        return said

    def _clear(self, number: int, workers: list[int]) -> None:
        """Removes what workers answered; what is still to come they remove when it has come."""
        for worker in workers:
            shard_answers.give_up(self._store, answer_key(number, worker))

    def _error(self, name: str, reason: str) -> StorageError:
        return StorageError(
            f"the sharded slot {name!r} cannot be gathered by worker {self._rank} alone within"
            f" {self._read_seconds:.3g} seconds: {reason}; {_WHAT_TO_DO}"
        )


def answer_key(number: int, worker: int) -> str:
    """The key below which the table has a worker's answer to a request of this number."""
    return f"answers/{number}/{worker}"


def _ended_scripts(workers: list[int]) -> str:
    return f"{_workers(workers)} ended without waiting any longer for this one"


def _workers(workers: list[int]) -> str:
    numbers = ", ".join(str(worker) for worker in workers)
    return f"worker {numbers}" if len(workers) == 1 else f"workers {numbers}"

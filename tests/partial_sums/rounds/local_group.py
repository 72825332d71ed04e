"""Workers that are threads of one process, and sum NumPy arrays."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.workers.local_store import LocalStore
from tf_wu_shard.partial_sums.rounds.contributions import Contribution, RoundSum
from tf_wu_shard.partial_sums.rounds.rounds import Rounds
from tf_wu_shard.partial_sums.rounds.starts import may_start
from tf_wu_shard.partial_sums.rounds.table import RoundTable

SECONDS = 20.0


class LocalGroup:
    """The rounds of all workers, begun.

    Attributes:
        rounds: Per worker, its part.
        late: By how many rounds any gradient was late, at most.
    """

    def __init__(self, total: int, mode: str, max_staleness: int, seed: int = 0) -> None:
        self._total = total
        self._met = threading.Barrier(total, timeout=SECONDS)
        self._given: list[Any] = [None] * total
        store = LocalStore()
        self.failures: list[str] = []
        self.rounds = [
            Rounds(
                "test",
                worker,
                total,
                max_staleness,
                functools.partial(may_start, mode, seed, worker=worker, total=total),
                RoundTable(store, "test"),
                functools.partial(self._sum, worker),
                lambda old, new: [old[0] + new[0]],
                self.failures.append,
            )
            for worker in range(total)
        ]

    def end(self) -> None:
        """Ends all threads but those that wait at the table."""
        self._met.abort()
        for one in self.rounds:
            one.end("the test is over")

    def _sum(self, worker: int, given: Contribution) -> RoundSum:
        self._given[worker] = given
        self._met.wait()
        shares: Sequence[Contribution] = [*self._given]
        self._met.wait()
        gradients = sum(np.sum(step[0], axis=0) for one in shares for step in one.gradients)
        values = sum(one.values[0] for one in shares if one.values is not None)
        numbered = range(len(shares[0].said))
        said = []
        for number in numbered:
            there = [one.said[number][0] for one in shares if one.said[number][1]]
            said.append(sum(there) * self._total / len(there) if there else None)
        return RoundSum([np.array(gradients)], [values], said, [one.part for one in shares])

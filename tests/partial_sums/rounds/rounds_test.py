"""Rounds lose nothing, are never later than allowed, and give all workers the same."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.partial_sums.rounds.local_group import SECONDS, LocalGroup


@dataclasses.dataclass
class Taken:
    """What a worker got in its steps, and what it handed in."""

    gradients: list[int]
    values: list[int]
    handed_in: int


def _train(
    group: LocalGroup, worker: int, pauses: Sequence[float], is_out: Sequence[bool]
) -> Taken:
    """Takes a step after each pause, as long as any worker has a batch."""
    rounds, taken = group.rounds[worker], Taken([], [], 0)
    for number, (pause, out) in enumerate(zip(pauses, is_out, strict=True)):
        time.sleep(pause)
        if not rounds.has_batch(not out):
            break
        # What is computed without a batch is of none.
        own = (worker + 1) * 1000 ** (number % 4) if not out else 7
        taken.handed_in += own if not out else 0
        found = rounds.exchange([np.array([own])], [np.array(worker + 10 * number)])
        taken.gradients.append(int(found.gradients[0].sum()))
        taken.values.append(int(found.values[0]))
    return taken


def _run(
    group: LocalGroup, pauses: Sequence[Sequence[float]], is_out: Sequence[Sequence[bool]]
) -> list[Taken]:
    with concurrent.futures.ThreadPoolExecutor(len(pauses)) as threads:
        work = [
            threads.submit(_train, group, worker, *one)
            for worker, one in enumerate(zip(pauses, is_out, strict=True))
        ]
        return [one.result(SECONDS) for one in work]


_PAUSES = st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.004, 0.012])


@given(data=st.data(), mode=st.sampled_from(["majority", "solo"]))
@settings(max_examples=40, deadline=None)
def test_nothing_is_lost(data: st.DataObject, mode: str) -> None:
    total = data.draw(st.integers(1, 4), "workers")
    steps = data.draw(st.integers(1, 12), "steps")
    bound = data.draw(st.integers(1, 3), "max_staleness")
    pauses = data.draw(
        st.lists(st.lists(_PAUSES, min_size=steps, max_size=steps), min_size=total, max_size=total),
        "pauses",
    )
    # A dataset that has ended yields no more.
    ends = data.draw(st.lists(st.integers(0, steps), min_size=total, max_size=total), "batches")
    out = [[number >= end for number in range(steps)] for end in ends]
    group = LocalGroup(total, mode, bound)
    taken = _run(group, pauses, out)
    carried = sum(int(one.sum()) for one in group.rounds[0].carried)
    pending = [sum(int(one[0].sum()) for one in each.pending) for each in group.rounds]
    records = [each.record for each in group.rounds]
    group.end()
    assert not group.failures
    # All took as many steps as the longest dataset has batches.
    assert {len(one.gradients) for one in taken} == {max(ends)}
    assert len({(*one.gradients, *one.values) for one in taken}) == 1
    applied = sum(taken[0].gradients)
    # What was late at the end, none of it waits when all have seen that there are no more batches.
    if max(ends) < steps:
        assert not any(pending)
    assert applied + carried + sum(pending) == sum(one.handed_in for one in taken)
    assert max(one.staleness for one in records) <= bound

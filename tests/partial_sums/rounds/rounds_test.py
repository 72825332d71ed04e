"""Rounds lose nothing, are never later than allowed, and give all workers the same."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.partial_sums.rounds.local_group import SECONDS, LocalGroup
from tf_wu_shard.partial_sums.rounds.rounds import Rounds


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


def _on_all(group: LocalGroup, *work: Callable[[Rounds], Any]) -> list[Any]:
    """What comes of one piece of work on each worker, all at the same time."""
    with concurrent.futures.ThreadPoolExecutor(len(work)) as threads:
        begun = [
            threads.submit(one, rounds) for one, rounds in zip(work, group.rounds, strict=True)
        ]
        return [one.result(SECONDS) for one in begun]


def _step(gradient: int) -> Callable[[Rounds], int]:
    def take(rounds: Rounds) -> int:
        return int(rounds.exchange([np.array([gradient])], [np.array(0)]).gradients[0].sum())

    return take


def _slowly(work: Callable[[Rounds], Any]) -> Callable[[Rounds], Any]:
    def wait(rounds: Rounds) -> Any:
        time.sleep(0.1)
        return work(rounds)

    return wait


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
    # Of all workers that had a batch, in each round, and never an older one than before.
    have_one = sum(worker for worker, end in enumerate(ends) if end)
    assert {value % 10 for value in taken[0].values} <= {have_one}
    assert taken[0].values == sorted(taken[0].values)
    applied = sum(taken[0].gradients)
    # What was late at the end, none of it waits when all have seen that there are no more batches.
    if max(ends) < steps:
        assert not any(pending)
    assert applied + carried + sum(pending) == sum(one.handed_in for one in taken)
    assert max(one.staleness for one in records) <= bound


def test_who_hands_in_the_rest_while_others_go_on_loses_nothing() -> None:
    group = LocalGroup(2, "solo", 2)
    first = _on_all(group, _step(1), _step(10))
    alone, sum_of_other = _on_all(group, Rounds.hand_in_rest, _step(100))
    again = group.rounds[0].hand_in_rest()
    same = _step(1000)(group.rounds[0])
    assert [alone, again] == [False, False]
    assert same == sum_of_other
    last = _on_all(group, _step(10000), _step(100000))
    late: list[int] = []
    for one in group.rounds:
        one.finish = lambda sums: late.append(int(sums[0].sum()))
    assert _on_all(group, Rounds.hand_in_rest, Rounds.hand_in_rest) == [True, True]
    group.end()
    assert len({*late}) < 2
    assert first[0] + sum_of_other + last[0] + sum(late[:1]) == 111111


@pytest.mark.parametrize("who", ["keeps", "has no update"])
def test_what_one_worker_cannot_put_into_weights_no_worker_does(who: str) -> None:
    group = LocalGroup(2, "solo", 2)
    updates: list[Any] = []
    group.rounds[0].finish = updates.append
    if who == "keeps":
        group.rounds[1].finish = updates.append
    _on_all(group, _step(1), _step(10))
    _on_all(group, _step(100), _slowly(_step(1000)))
    keeps = functools.partial(Rounds.hand_in_rest, keeps=who == "keeps")
    assert _on_all(group, Rounds.hand_in_rest, keeps) == [True, True]
    carried = [int(one.carried[0].sum()) for one in group.rounds]
    group.end()
    assert not updates
    assert carried == [1000, 1000]


def test_what_is_said_after_a_sum_comes_with_the_next_one() -> None:
    group = LocalGroup(2, "majority", 2)
    numbers = [one.new_value(np.array(0)) for one in group.rounds]
    found = []
    for step in range(3):
        _on_all(group, _step(1), _step(1))
        said = [np.array(10 * step + worker) for worker in range(2)]
        found.append([one.say(n, v) for one, n, v in zip(group.rounds, numbers, said, strict=True)])
    group.end()
    assert found == [[None, None], [1, 1], [21, 21]]

"""A function that one worker traces alone, or otherwise than the others, hangs and changes nothing.

Unsharded, a worker that begins a step alone waits in its first collective until the others come.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.equivalence.one_worker_run import AGREEMENT_SECONDS, CASES
from tests.workers.processes import completed, launch, running

# What is left alone, and why: by words that stand in the reason on both workers.
_LEFT_ALONE = {
    "traced_early": "worker 1 has not answered within 3",
    "read_in_step": "worker 0 proposed plan",
    "moved_apart_by_hand": "workers hold different values of its variables",
    "moved_apart_first": "writes what each replica has of its own",
}


# Here the workers agree on the first optimizer's step, and not on the second's.
_SECOND_LEFT_ALONE = "looked_at_anothers_slots"

# Here nothing of the first step is shared, and all of the second's.
_FIRST_LEFT_ALONE = "refused_once_more"

_SOME_LEFT_ALONE = {*_LEFT_ALONE, _SECOND_LEFT_ALONE, _FIRST_LEFT_ALONE}


@functools.cache
def found() -> list[Any]:
    """What came of all cases, by worker."""
    done = launch("tests.equivalence.one_worker_run", ["compare"], workers=2, seconds=300)
    return [worker.answer for worker in done]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nothing_differs_by_a_bit(name: str) -> None:
    for worker in found():
        assert worker[name]["apart"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n not in _SOME_LEFT_ALONE])
def test_slots_live_in_shards_all_the_same(name: str) -> None:
    for worker in found():
        assert worker[name]["in_shards"] >= 8
        assert set(worker[name]["verdicts"]) == {"sharded"}


@pytest.mark.slow
@pytest.mark.parametrize("name", _LEFT_ALONE)
def test_what_is_left_alone_has_its_reason_on_both_workers(name: str) -> None:
    for worker in found():
        assert worker[name]["in_shards"] == 0
        assert worker[name]["verdicts"] == ["nothing sharded"]
        assert all(_LEFT_ALONE[name] in reason for reason in worker[name]["reasons"])


@pytest.mark.slow
def test_slots_of_another_optimizer_take_a_vote_of_their_own() -> None:
    for worker in found():
        assert worker[_SECOND_LEFT_ALONE]["in_shards"] == 8
        assert worker[_SECOND_LEFT_ALONE]["verdicts"] == ["sharded", "nothing sharded"]
        (reason,) = worker[_SECOND_LEFT_ALONE]["reasons"]
        assert "worker 0 proposed plan" in reason and "worker 1 proposed plan" in reason


@pytest.mark.slow
def test_a_step_that_is_refused_again_on_one_worker_keeps_nobody_from_the_next() -> None:
    for worker, times in zip(found(), (2, 1), strict=True):
        case = worker[_FIRST_LEFT_ALONE]
        assert case["in_shards"] == 8
        assert case["verdicts"] == ["nothing sharded"] * times + ["sharded"]
        assert all("runs inside of While" in reason for reason in case["reasons"])
        # Nobody waited for the other's answer to a question of its own.
        assert case["seconds"][1] - case["seconds"][0] < AGREEMENT_SECONDS


@pytest.mark.slow
def test_a_step_that_the_chief_traces_alone_takes_the_seconds_of_an_agreement() -> None:
    done = launch(
        "tests.equivalence.one_worker_run", ["compare", "traced_early"], workers=2, seconds=120
    )
    alone, in_company = (
        [float(line.split()[-1]) for line in worker.output.splitlines() if "traced in" in line]
        for worker in done
    )
    # Without the flag and with it. The late worker reads what was decided long ago.
    assert alone[1] - alone[0] < AGREEMENT_SECONDS + 2
    assert in_company[1] - in_company[0] < 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("read_by_the_chief", "the same reads of slots in it"),
        ("written_by_each", "with what each replica may have of its own (rows, Placeholder)"),
    ],
)
def test_what_no_worker_can_go_on_from_ends_all_where_slots_live_in_shards(
    name: str, said: str
) -> None:
    arguments = ["refused", name]
    with running("tests.equivalence.one_worker_run", arguments, workers=2) as workers:
        done = completed(workers, 90)
    assert all(worker.returncode for worker in done)
    assert said in done[0].output, done[0].shown

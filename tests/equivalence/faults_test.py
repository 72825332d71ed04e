"""A worker dies, stops or leaves, and the others learn of it as fast as they do unsharded.

Two workers, each as victim, at each moment of a training; see `faults_run`. Nobody hangs, nobody
reads a wrong value, and a worker that is merely slow is waited for.
"""

from __future__ import annotations

import itertools
import statistics
import time

import pytest

from tests.equivalence.fault_times import (
    HANGS_SECONDS,
    LOSSES,
    MOMENTS,
    Fault,
    Survived,
    in_turns,
    moment_of,
    survive,
)
from tests.workers.processes import completed, launch, running

# A loss is to be noticed within this many times what an unsharded run takes.
_FACTOR = 1.5

# A death is noticed in 0.1 s, and the end of a process that failed takes 1 to 3 s, as busy as the
# machine is: too short to compare by a factor alone. Whatever notices it more slowly takes longer
# than this by far: TensorFlow's heartbeat 4 to 10 s, and what waits for an option's time 30 or 60.
_SLACK_SECONDS = 1.5

# One launch may be late by what else the machine does; what is slow by itself is slow every time.
_PAIRS = 3

# Of TensorFlow, as different threads of its notice the loss.
_TENSORFLOWS = {
    *("UnavailableError", "DeadlineExceededError", "AbortedError", "CancelledError"),
    *("InternalError", "FailedPreconditionError"),
}

# Who waits for another worker outside of a step gets the package's error. In a save the others may
# have all they need already, and meet the loss in the next step; so does who has read everything.
_ERRORS = {
    "step": _TENSORFLOWS,
    "save": {"StorageError", *_TENSORFLOWS},
    "answered": {"StorageError", *_TENSORFLOWS},
}

FAULTS = [Fault(*case) for case in itertools.product(MOMENTS, LOSSES, (0, 1))]


def _ends_with(survived: Survived, errors: set[str]) -> None:
    """Holds that a worker ended by one of some errors."""
    assert survived.done.returncode == 1, survived.done.shown
    assert survived.said("noticed")[1] in errors, survived.done.shown


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_lost_worker_is_noticed_as_fast_as_unsharded(fault: Fault) -> None:
    ended: list[tuple[float, float]] = []
    for unsharded, sharded in itertools.islice(in_turns(fault), _PAIRS):
        _ends_with(unsharded, _TENSORFLOWS)
        _ends_with(sharded, _ERRORS.get(fault.moment, {"StorageError"}))
        if fault.moment not in ("trace", "vote"):
            assert "['sharded']" in sharded.done.output, sharded.done.shown
        if fault.moment in ("asked", "answering"):
            # It has no part of what it would need.
            assert not sharded.said("read"), sharded.done.shown
        elif sharded.said("read"):
            # Two workers train bit for bit as unsharded.
            assert sharded.said("read") == unsharded.said("read")
        ended.append((unsharded.ended, sharded.ended))
        off, on = (statistics.median(seconds) for seconds in zip(*ended, strict=True))
        if on <= _FACTOR * off + _SLACK_SECONDS:
            return
    pytest.fail(f"{fault}: unsharded and sharded, the other ended after {ended} seconds")


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["chief", "worker"])
@pytest.mark.parametrize("how", ["fail", "leave"])
def test_the_other_does_not_wait_for_one_whose_program_has_ended(how: str, victim: int) -> None:
    fault = Fault("between", how, victim)
    unsharded, sharded = survive(fault, "off"), survive(fault, "on")
    for survived in (unsharded, sharded):
        _ends_with(survived, _TENSORFLOWS)
    assert sharded.ended <= _FACTOR * unsharded.ended + _SLACK_SECONDS


@pytest.fixture(scope="module")
def trained() -> str:
    """What an unsharded training says at its end to which nothing happens."""
    words = ["step", "kill", "-1", "off"]
    done = launch("tests.equivalence.faults_run", words, workers=2, seconds=HANGS_SECONDS)
    last = {worker.output.splitlines()[-1] for worker in done}
    assert len(last) == 1
    return last.pop()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["chief", "worker"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_that_pauses_is_waited_for(moment: str, victim: int, trained: str) -> None:
    # TensorFlow's heartbeat gives a worker up after ten seconds, with the flag or without.
    words = [moment, "pause", str(victim), "on"]
    with running("tests.equivalence.faults_run", words, workers=2) as workers:
        moment_of(workers[victim])
        time.sleep(4)
        workers[victim].go_on()
        for done in completed(workers, HANGS_SECONDS):
            assert done.returncode == 0, done.shown
            assert done.output.splitlines()[-1] == trained
            assert "['sharded']" in done.output
    assert trained.startswith("trained ")

"""A worker dies or stops, and all others end with an error, as they do unsharded; nobody hangs."""

from __future__ import annotations

import pytest

from tests.workers.processes import completed, running

# TensorFlow notices a stopped worker by its missing heartbeat, after 10 s, and then tears down.
_SECONDS = 90

# What says that another worker is gone: TensorFlow's errors, and the package's own.
_SAID = ("UnavailableError", "AbortedError", "CancelledError", "InternalError", "StorageError")


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["chief", "worker"])
@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("moment", ["step", "save"])
@pytest.mark.parametrize("flag", ["on", "off"])
def test_the_others_end_with_an_error(moment: str, how: str, victim: int, flag: str) -> None:
    with running("tests.equivalence.faults_run", [moment, flag], workers=2) as workers:
        lost, survivor = workers[victim], workers[1 - victim]
        for worker in workers:
            worker.line("moment", 120)
        getattr(lost, how)()
        (done,) = completed([survivor], _SECONDS)
    assert done.returncode, done.shown
    # A process that TensorFlow ends itself says it in the log.
    assert any(said in done.errors for said in _SAID) or done.returncode < 0, done.shown


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_worker_that_is_lost_before_the_vote_hangs_nobody(how: str) -> None:
    with running("tests.equivalence.faults_run", ["agreement", "on"], workers=2) as workers:
        chief, lost = workers
        lost.line("moment", 120)
        getattr(lost, how)()
        (done,) = completed([chief], _SECONDS)
    assert done.returncode, done.shown
    assert "sharded" not in [word.strip("[]'") for word in done.output.split()], done.shown

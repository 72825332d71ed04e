"""Under several workers nothing is sharded, and the report says what keeps it from being so."""

from __future__ import annotations

from tests.workers.processes import launch


def test_the_other_workers_replicas_are_the_reason() -> None:
    for worker in launch("tests.equivalence.workers_run", workers=2, seconds=300):
        (reason,) = worker.answer
        assert reason.startswith("its replicas are spread over several workers")

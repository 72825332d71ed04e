"""A training goes on from its checkpoint on any number of workers, slots equal bit for bit."""

from __future__ import annotations

import pathlib

import pytest

from tests.workers.processes import launch


@pytest.mark.slow
def test_four_three_one_and_eight_workers_go_on_from_one_another(tmp_path: pathlib.Path) -> None:
    left: list[str] = []
    for workers in (4, 3, 1, 8, 4):
        done = launch("tests.equivalence.elastic_run", [str(tmp_path)], workers, seconds=400)
        answers = [worker.answer for worker in done]
        assert all(answer == answers[0] for answer in answers)
        if left:
            assert answers[0]["restored"] == answers[0]["again"] == left
        left = answers[0]["trained"]
        assert answers[0]["verdicts"] == (["sharded"] if workers > 1 else ["nothing sharded"])

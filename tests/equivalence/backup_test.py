"""A fit that loses a worker goes on with fewer from its last backup, bit for bit."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.equivalence.backup_run import EPOCHS
from tests.workers.processes import CompletedWorker, completed, launch, running

_PROGRAM = "tests.equivalence.backup_run"

# Eight processes on two cores take a minute to begin; nobody waits for a dead worker that long.
_SECONDS = 300


def _said(worker: CompletedWorker, word: str) -> list[Any]:
    """What a worker printed behind a word, line by line."""
    lines = [line.partition(" ") for line in worker.output.splitlines()]
    return [json.loads(rest) for first, _, rest in lines if first == word]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 2], ids=["chief", "worker"])
def test_three_workers_go_on_from_what_four_saved_before_one_was_killed(
    victim: int, tmp_path: pathlib.Path
) -> None:
    words = [str(tmp_path), "fresh", str(victim)]
    with running(_PROGRAM, words, workers=4) as workers:
        workers[victim].line("struck", _SECONDS)
        survivors = completed([w for w in workers if w.index != victim], _SECONDS)
    last = [_said(survivor, "saved")[-1] for survivor in survivors]
    for survivor in survivors:
        assert survivor.returncode == 1, survivor.shown
        assert "tensorflow.python.framework.errors_impl." in survivor.errors, survivor.shown
        assert _said(survivor, "from")[0][0] == 0
    # Two epochs were saved before the third.
    assert last == [[2, last[0][1]]] * 3
    for start in ("checkpoint", "backup"):
        done = launch(_PROGRAM, [str(tmp_path), start], workers=3, seconds=_SECONDS)
        assert [_said(worker, "from") for worker in done] == [last[:1]] * 3
        assert [worker.answer for worker in done] == [["sharded"]] * 3
        trained = [_said(worker, "trained") for worker in done]
        assert trained == trained[:1] * 3
        assert trained[0][0][0] == EPOCHS
        assert trained[0][0][1] != last[0][1]

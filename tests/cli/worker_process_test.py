"""A worker of a local cluster writes its verdict for its starter, and ends with it."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tf_wu_shard.cli import run, worker_process


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Callable[..., Any]:
    """What a worker tells that is asked to run something, with the options that it ran with."""

    def ask(verdicts: list[str], refused: int, report: str | None = None) -> Any:
        ran: list[argparse.Namespace] = []

        def run_here(args: argparse.Namespace, tell: Callable[[str], None]) -> int:
            ran.append(args)
            for verdict in verdicts:
                tell(verdict)
            return refused

        told = tmp_path / "told"
        what = {"starter": os.getppid(), "options": {"script": "x.py"}, "told": str(told)}
        monkeypatch.setattr(sys, "argv", ["worker", json.dumps({**what, "report": report})])
        monkeypatch.setattr(run, "run_here", run_here)
        monkeypatch.setattr(worker_process, "_end_with", lambda starter: None)
        assert worker_process.main() == 0
        text = told.read_text(encoding="utf-8") if told.exists() else "null"
        return json.loads(text), ran[0]

    return ask


def test_the_verdict_is_told_and_a_run_that_is_refused_says_so(asked: Callable[..., Any]) -> None:
    assert asked(["sharded"], 0)[0] == {"verdict": "sharded", "refused": False}
    assert asked(["nothing sharded"], 1)[0] == {"verdict": "nothing sharded", "refused": True}
    assert asked([], 1)[0] == {"verdict": None, "refused": True}


def test_a_script_that_asks_for_no_sharding_tells_nothing(asked: Callable[..., Any]) -> None:
    assert asked([], 0)[0] is None


def test_the_options_are_those_of_the_starter_and_a_report_is_a_path(
    asked: Callable[..., Any],
) -> None:
    _, args = asked([], 0, report="out.html")
    assert args.script == "x.py" and args.report == pathlib.Path("out.html")
    assert not hasattr(asked([], 0)[1], "report")


def test_a_worker_whose_starter_has_ended_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    # The kernel is not asked here: it would end the tests with what started them.
    monkeypatch.setattr(sys, "platform", "elsewhere")
    worker_process._end_with(os.getppid())
    with pytest.raises(SystemExit, match="process 1234567 ended before its worker ran"):
        worker_process._end_with(1234567)

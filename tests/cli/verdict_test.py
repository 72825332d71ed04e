"""What `wu-shard run` says at the end of a script, and the file that it writes."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence

import pytest

from tf_wu_shard import refusals
from tf_wu_shard.cli import verdict
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.report.published import nothing_sharded
from tf_wu_shard.report.report import Report


def left(function: str) -> Report:
    return nothing_sharded(function, refusals.Topology.RUNS_EAGERLY.at())


@pytest.fixture
def said() -> list[str]:
    return []


def with_reports(monkeypatch: pytest.MonkeyPatch, reports: Sequence[Report]) -> None:
    monkeypatch.setattr(verdict, "_reports", lambda: tuple(reports))


def test_a_script_without_tensorflow_is_told_so(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert verdict.finish(ShardingOptions(), None, said.append) == 0
    assert said == ["warning: nothing was sharded: the script never imported TensorFlow"]


def test_whoever_asked_for_an_error_gets_one(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert verdict.finish(ShardingOptions(on_refusal="raise"), None, said.append) == 1
    assert said[0].startswith("error: nothing was sharded")


def test_no_more_functions_are_named_than_a_paragraph_bears(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    with_reports(monkeypatch, [left(f"step_{number}") for number in (1, 2, 2, 3, 4, 5)])
    monkeypatch.setitem(sys.modules, "tensorflow", sys.modules[__name__])
    verdict.finish(ShardingOptions(), None, said.append)
    assert said[0].endswith("; and 2 more")
    assert said[0].count("step_2") == 1


def test_an_unsharded_run_has_no_verdict_and_a_report(
    monkeypatch: pytest.MonkeyPatch, said: list[str], tmp_path: pathlib.Path
) -> None:
    with_reports(monkeypatch, [])
    assert verdict.finish(None, tmp_path / "r.json", said.append) == 0
    assert said == []
    (report,) = json.loads((tmp_path / "r.json").read_text())
    assert report["verdict"] == "nothing sharded"


def test_a_report_that_cannot_be_written_fails_the_run(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdict.write(tmp_path, []) == 1
    assert "cannot write the report" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("role", "status"),
    [
        ('{"task": {"type": "evaluator", "index": 0}}', 0),
        ('{"task": {"type": "worker", "index": 0}}', 1),
        ('{"task": []}', 1),
        ("no JSON", 1),
    ],
)
def test_an_evaluator_has_nothing_to_shard_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, said: list[str], role: str, status: int
) -> None:
    with_reports(monkeypatch, [])
    monkeypatch.setenv("TF_CONFIG", role)
    assert verdict.finish(ShardingOptions(on_refusal="raise"), None, said.append) == status
    assert ("is an evaluator" in said[0]) == (not status)

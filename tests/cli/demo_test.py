"""Claims about cli/demo.py: its arguments, its exit status, its report."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable

import pytest

from tests.demo.samples import NOT_COMPILED, comparison
from tf_wu_shard.cli.main import main
from tf_wu_shard.demo import compilation, schedule
from tf_wu_shard.demo.comparison import Comparison
from tf_wu_shard.demo.compilation import Compilation
from tf_wu_shard.demo.processes import Trainer


def _pretend(
    monkeypatch: pytest.MonkeyPatch, compared: Comparison, compiled: Compilation = NOT_COMPILED
) -> None:
    def train_all(
        tasks: Iterable[str],
        trainer: Trainer,
        *,
        beside: Callable[[], Compilation],
        **_: object,
    ) -> tuple[list[Comparison], Compilation]:
        trainer.folder.mkdir(parents=True, exist_ok=True)
        return [compared for _ in tasks], beside()

    monkeypatch.setattr(schedule, "train_all", train_all)
    monkeypatch.setattr(compilation, "compile_step", lambda quick, folder, say: compiled)


def test_agreeing_runs_exit_with_0_and_leave_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    _pretend(monkeypatch, comparison())
    assert main(["demo", "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "the sharded and the unsharded run agree" in page
    assert f"report: {tmp_path / 'out' / 'report.html'}" in capsys.readouterr().out


def test_disagreeing_runs_exit_with_1_and_still_leave_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    _pretend(monkeypatch, comparison(difference=1.0))
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert (tmp_path / "report.html").exists()
    assert "wu-shard demo: digits: weights differ by 1.0e+00" in capsys.readouterr().err


def test_runs_with_nothing_sharded_exit_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    _pretend(monkeypatch, comparison(sharding=None))
    assert main(["demo", "--out", str(tmp_path)]) == 1


def test_without_the_tpu_compiler_the_demo_succeeds_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    _pretend(monkeypatch, comparison())
    assert main(["demo", "--out", str(tmp_path)]) == 0
    told = "the TPU compiler is not installed"
    assert f"no step was compiled for TPUs: {told}" in capsys.readouterr().out
    assert f"not compiled: {told}" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_failed_compile_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    failed = dataclasses.replace(NOT_COMPILED, missing="", failure="no kernel for Foo")
    _pretend(monkeypatch, comparison(), failed)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert "wu-shard demo: mlp on v5e:2x2: no kernel for Foo" in capsys.readouterr().err


def test_one_replica_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--replicas", "1"]) == 2
    assert "--replicas must be at least 2, not 1" in capsys.readouterr().err


def test_a_file_is_no_place_for_the_report(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    occupied = tmp_path / "occupied"
    occupied.write_text("")
    assert main(["demo", "--out", str(occupied)]) == 2
    assert "is a file; name a folder" in capsys.readouterr().err


@pytest.mark.slow
def test_the_quick_demo_runs_end_to_end(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    assert main(["demo", "--quick", "--replicas", "4", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("over 4 replicas") >= 3
    assert "over 2 replicas" in said
    assert said.count("equal on all 2 workers") == 3
    assert "NOT equal" not in said
    assert "mlp, adam on v5e:2x2, 4 replicas" in said
    assert "DISAGREE" not in said
    assert (tmp_path / "report.html").stat().st_size > 10_000

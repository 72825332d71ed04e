"""What the arguments of `wu-shard run` ask for, and what is said of those that make no sense."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import pytest

from tf_wu_shard.cli import run, run_arguments


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    return parser.parse_args(["run", *arguments])


@pytest.fixture
def script(tmp_path: pathlib.Path) -> str:
    file = tmp_path / "train.py"
    file.write_text("")
    return str(file)


def test_a_script_keeps_its_own_arguments(script: str) -> None:
    args = parsed("--min-elements", "7", "--", script, "--epochs", "2")
    assert run_arguments.target(args) == (False, [script, "--epochs", "2"])
    options = run_arguments.options(args)
    assert options is not None and options.min_elements == 7


def test_a_module_keeps_what_comes_after_it() -> None:
    assert run_arguments.target(parsed("-m", "train", "-v")) == (True, ["train", "-v"])


def test_unsharded_takes_the_other_options_and_asks_for_none(script: str) -> None:
    assert run_arguments.options(parsed("--unsharded", "--deterministic", script)) is None


def test_nothing_is_asked_for_that_was_not_given(script: str) -> None:
    args = parsed(script)
    assert run_arguments.workers(args) is None
    assert run_arguments.emulated(args) is None
    assert run_arguments.report_path(args) is None


def test_a_report_goes_to_the_folder_it_was_asked_for_in(
    script: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_arguments.report_path(parsed("--report", "r.json", script)) == tmp_path / "r.json"


def test_replicas_stand_in_for_a_slice_of_as_many(script: str) -> None:
    args = parsed("--emulate-tpu", "8", "--topology", "v5e:2x4", script)
    assert run_arguments.emulated(args) == (8, "v5e:2x4")


def test_workers_are_counted(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert run_arguments.workers(parsed("--workers", "3", script)) == 3


@pytest.mark.parametrize(
    ("asked", "arguments", "said"),
    [
        (run_arguments.workers, ("--workers", "0"), "at least 1 worker, not 0"),
        (run_arguments.workers, ("--workers", "2", "--emulate-tpu", "2"), "leave out the one"),
        (run_arguments.emulated, ("--emulate-tpu", "0"), "at least 1 replica, not 0"),
        (run_arguments.emulated, ("--topology", "v5e:2x4"), "goes with --emulate-tpu N"),
        (run_arguments.emulated, ("--emulate-tpu", "4", "--topology", "v5e:2x4"), "has 8 devices"),
        (run_arguments.emulated, ("--emulate-tpu", "4", "--topology", "round"), "round"),
        (run_arguments.options, ("--min-sharded", "2"), "min_sharded"),
        (run_arguments.target, (), "give the script to run"),
        (run_arguments.target, ("absent.py",), "cannot run 'absent.py': no such file"),
        (run_arguments.target, ("/",), "cannot run '/': a folder"),
        (run_arguments.target, ("-m",), "-m needs the name of a module"),
        (
            run_arguments.report_path,
            ("--report", "/"),
            "cannot write the report '/': it is a folder",
        ),
    ],
)
def test_what_makes_no_sense_ends_the_command(
    asked: Any, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        asked(parsed(*arguments))
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_worker_starts_no_cluster(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(SystemExit):
        run_arguments.workers(parsed("--workers", "2", script))
    assert "part of a cluster already" in capsys.readouterr().err

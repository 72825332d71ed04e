"""The tool from a checkout answers as the command does, and is asked by flags."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tests.model_files.exported import exported
from tf_wu_shard.cli import inspect
from tf_wu_shard.cli.main import main as wu_shard
from tools import inspect_saved_model

TOOL = pathlib.Path(inspect_saved_model.__file__)


def test_it_answers_as_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(exported("adam"))
    chosen = ["--replicas=4", "--function=train", "--format=json"]
    assert wu_shard(["inspect", path, *chosen]) == 0
    answer = capsys.readouterr().out
    assert inspect_saved_model.main(["--dir", path, *chosen]) == 0
    assert capsys.readouterr().out == answer


def test_it_has_the_formats_of_the_command() -> None:
    assert {*inspect_saved_model.FORMATS} == {*inspect.FORMATS}


def test_an_answer_goes_to_a_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "answer.md"
    assert (
        inspect_saved_model.main(
            ["--dir", str(exported("adam")), "--format=markdown", f"--output={file}"]
        )
        == 0
    )
    assert "| Variable" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--dir is missing"),
        (["--dir=m", "other"], "unexpected argument 'other'"),
        (["--dir=m", "--replicas=many"], "--replicas=many"),
        (["--dir=m", "--format=nosuch"], "--format=nosuch"),
        (["--dir=m", "--nosuch"], "nosuch"),
        (["--dir=m", "--replicas=1"], "--replicas must be from 2"),
        (["--dir=m", "--script=s"], "not both"),
        (["--script=nosuch.py", "--", "--epochs=3"], "cannot run 'nosuch.py': no such file"),
        (["--dir=m", "--optimizer=nosuch"], "Keras has no optimizer 'nosuch'"),
    ],
)
def test_wrong_usage_is_told_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect_saved_model.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_what_cannot_be_read_is_told(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect_saved_model.main(["--dir", str(tmp_path)]) == 1
    assert "is no SavedModel" in capsys.readouterr().err


def test_it_runs_as_a_file_from_anywhere(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--help"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--topology" in done.stdout

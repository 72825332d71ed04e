"""The command line: help names every command, a wrong usage costs one line and status 2."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import re
import types

import pytest

from tests.cli.command import python
from tf_wu_shard.cli import main as command_line
from tf_wu_shard.errors import OptionError, StorageError, UnsupportedTensorFlowError


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line.main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    # A long name has a line to itself.
    assert all(re.search(rf"\n    {name}\s", shown) for name in command_line.COMMANDS)


def test_the_command_line_and_run_wait_for_nobody_to_load_tensorflow(
    tmp_path: pathlib.Path,
) -> None:
    question = (
        "import sys, tf_wu_shard.cli.main, tf_wu_shard.cli.run;"
        "print(sorted({'tensorflow', 'keras', 'numpy'} & set(sys.modules)))"
    )
    assert python("-c", question, cwd=tmp_path).stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["trian"],
        ["--fast"],
        ["run"],
        ["run", "-m"],
        ["run", "absent.py"],
        ["run", "."],
        ["run", "--min-elements", "0", __file__],
        ["run", "--min-elements", "few", __file__],
        ["run", "--bucket-bytes", "-1", __file__],
        ["run", "--on-refusal", "ignore", __file__],
        ["run", "--determ", __file__],
        ["run", "--report", "absent/report.json", __file__],
        ["run", "--report", ".", __file__],
    ],
    ids=" ".join,
)
def test_a_wrong_usage_costs_one_line_and_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        command_line.main(arguments)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("wu-shard") and ": error: " in err


@pytest.mark.parametrize(
    ("error", "status"), [(OptionError("size is odd"), 2), (StorageError("slot is gone"), 1)]
)
def test_an_error_of_a_command_costs_one_line(
    error: Exception,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise error

    stand_in = types.SimpleNamespace(
        add_parser=lambda subparsers: subparsers.add_parser("bench"), run=run
    )
    monkeypatch.setattr(importlib, "import_module", lambda name: stand_in)
    assert command_line.main(["bench"]) == status
    assert capsys.readouterr().err == f"wu-shard bench: error: {error}\n"


def test_an_error_of_importing_tensorflow_costs_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = UnsupportedTensorFlowError("it lacks a name")

    def import_module(name: str) -> types.ModuleType:
        raise error

    monkeypatch.setattr(importlib, "import_module", import_module)
    assert command_line.main(["inspect", "model"]) == 1
    assert capsys.readouterr().err == f"wu-shard inspect: error: {error}\n"

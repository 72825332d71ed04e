"""`wu-shard tpu-compile` from the command line: a small model's figures, and wrong usages."""

from __future__ import annotations

import importlib.util
import json
import pathlib

import pytest

from tests.cli.command import wu_shard
from tf_wu_shard.cli import main as command_line

STEP = {
    *("argument_bytes", "output_bytes", "alias_bytes", "temp_bytes", "memory_in_use_bytes"),
    *("cycles", "scope_cycles", "milliseconds", "pessimistic_milliseconds"),
    *("uncosted_copy_bytes", "collectives", "requested_collectives"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where a run on the smallest model left its files; `table` is what it printed."""
    folder = tmp_path_factory.mktemp("tpu_compile")
    done = wu_shard(
        *("tpu-compile", "--model", "mlp", "--topology", "v5e:2x4", "--optimizer", "momentum"),
        *("--json", "figures.json", "--dump-hlo", "hlo"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    (folder / "table").write_text(done.stdout, encoding="utf-8")
    return folder


def test_json_has_every_figure_of_both_steps(folder: pathlib.Path) -> None:
    found = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
    assert (found["topology"], found["replicas"]) == ("v5e:2x4", 8)
    assert set(found["replicated"]) >= STEP and set(found["sharded"]) >= STEP
    replicated = found["replicated"]
    # Every replica sums every gradient: two kernels and two biases.
    assert replicated["requested_collectives"]["all-reduce"] == 4
    # Weights and momentum; all of them are written in place.
    weights = 4 * 2 * (64 * 64 + 64)
    assert replicated["alias_bytes"] >= 2 * weights
    assert replicated["memory_in_use_bytes"] >= replicated["argument_bytes"]
    assert replicated["milliseconds"] == pytest.approx(replicated["cycles"] / 1.5e9 * 1e3)


def test_the_table_says_what_its_times_leave_out(folder: pathlib.Path) -> None:
    table = (folder / "table").read_text(encoding="utf-8")
    assert "collectives excluded" in table and "never run" in table
    assert "fits" in table and "libtpu's own pass" in table


def test_the_optimized_programs_are_left_as_text(folder: pathlib.Path) -> None:
    for mode in ("replicated", "sharded"):
        text = (folder / "hlo" / f"{mode}.hlo").read_text(encoding="utf-8")
        assert text.startswith("HloModule") and "is_scheduled=true" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topology", "v5e:3x3"), "unknown topology 'v5e:3x3'; choose one of v2:2x2"),
        (("--batch", "0"), "batch must be at least 1, not 0"),
        (("--model", "mlp", "--script", "absent.py"), "no such file 'absent.py'"),
        (("--model", "mlp", "--script", __file__), "name a model or a script, and not both"),
        (("--script",), "--script needs the script to run"),
        (("--json", "no/such/folder/file"), "cannot write no/such/folder/file"),
    ],
)
def test_a_wrong_argument_costs_one_line_and_status_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["tpu-compile", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("wu-shard tpu-compile: error: ") and message in line


def test_an_unknown_model_lists_the_known_ones(tmp_path: pathlib.Path) -> None:
    done = wu_shard("tpu-compile", "--model", "gpt", cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("wu-shard tpu-compile: error: no model is called 'gpt'; choose one of")


def test_without_the_compiler_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command_line.main(["tpu-compile", "--model", "mlp"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pip install 'tf-wu-shard[tpu-compile]'" in error

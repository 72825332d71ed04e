"""`wu-shard inspect`: what it prints, where it writes, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
from typing import Any

import pytest

from tests.model_files.exported import exported
from tf_wu_shard.cli import main as command_line


def inspect(*arguments: object) -> int:
    return command_line.main(["inspect", *map(str, arguments)])


def test_text_gives_the_verdict_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(exported(), "--replicas", 4) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("SavedModel, 14 variables: 1 function trains\n")
    assert "4 updates: adam-like" in shown.out and "  1024   " in shown.out
    assert shown.err == ""


def test_json_goes_to_the_output(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "answer.json"
    assert inspect(exported(), "--format", "json", "--output", output) == 0
    assert capsys.readouterr().out == ""
    answer = json.loads(output.read_text(encoding="utf-8"))
    (kernel,) = (u for u in answer["updates"] if u["variable"] == "sequential/hidden/kernel")
    assert kernel["optimizer"] == "adam-like" and kernel["shape"] == [16, 64]
    assert answer["plan"][0]["num_replicas"] == 8 and answer["left_alone"] and answer["memory"]


@pytest.mark.parametrize(
    ("form", "start"),
    [("html", "<!doctype html>\n"), ("markdown", "# Weight-update sharding of `")],
)
def test_a_page_has_the_models_name(
    tmp_path: pathlib.Path, form: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "page"
    assert inspect(exported(), "--format", form, "--output", output) == 0
    assert capsys.readouterr().out == ""
    page = output.read_text(encoding="utf-8")
    assert page.startswith(start) and exported().name in page
    assert "sequential/<wbr>hidden/<wbr>kernel" in page or "`sequential/hidden/kernel`" in page


@pytest.mark.parametrize("form", ["text", "json", "html", "markdown"])
def test_another_optimizer_is_asked_for_by_name(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(exported(None), "--optimizer", "adam", "--format", form) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and "what if Adam, with Keras" in shown.out
    assert shown.out.count("trained with Adam") > 1


def test_an_unknown_optimizer_is_told_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect("absent", "--optimizer", "nosuch") == 2
    said = capsys.readouterr().err
    assert "adamw, " in said and "sgd" in said and "lossscale" not in said


@pytest.mark.parametrize("form", ["text", "json", "html", "markdown"])
def test_a_diff_shows_the_graph_before_and_after(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(exported(), "--diff", "--format", form) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "-adam/IdentityN/summed = CrossReplicaSum(" in shown.out
    assert inspect(exported(None), "--diff", "--format", form) == 0
    assert "summed" not in capsys.readouterr().out


def test_a_model_read_in_part_is_1_and_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(exported(), tmp_path / "model")
    (copy / "variables/variables.index").unlink()
    assert inspect(copy) == 1
    shown = capsys.readouterr()
    assert "adam-like" in shown.out
    assert shown.err.startswith("wu-shard inspect: only partly read: ")
    assert shown.err.count("\n") == 1


def test_a_file_without_a_model_is_1_and_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "graph.pb").write_bytes(b"\xff" * 100)
    assert inspect(tmp_path / "graph.pb") == 1
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert "truncated, corrupted, or something else" in shown.err


@pytest.mark.parametrize(
    "options",
    [
        ["--replicas", "1"],
        ["--replicas", "5000"],
        ["--replicas", "few"],
        ["--topology", "v5e:3x3"],
        ["--topology", "v5e:2x2", "--replicas", "8"],
        ["--format", "yaml"],
        ["--function", "absent"],
        ["--output", "absent/answer"],
        ["--optimizer", "nosuch"],
        ["--optimizer", "loss_scale_optimizer"],
        ["--optimizer", "adam", "--function", "train"],
        ["--optimizer", "adam", "--diff"],
    ],
    ids=" ".join,
)
def test_a_wrong_usage_is_2_and_one_line(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = inspect(exported(), *options)
    except SystemExit as stop:
        status = int(str(stop.code))
    assert status == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("file", ["saved_model.pb", "variables/variables.index"])
def test_an_answer_is_not_written_over_its_model(
    file: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(exported(), tmp_path / "model")
    before = (model / file).read_bytes()
    (tmp_path / "link").symlink_to(model / file)
    for output in (model / file, tmp_path / "link"):
        assert inspect(model, "--output", output) == 2
        assert "it is a file of the model" in capsys.readouterr().err
    assert (model / file).read_bytes() == before
    assert inspect(model, "--output", model / "answer.txt") == 0


def test_an_answer_that_cannot_be_written_whole_leaves_the_old_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "answer"
    output.write_text("of last time")
    output.chmod(0o640)
    write = pathlib.Path.write_text

    def full(path: pathlib.Path, text: str, **named: Any) -> int:
        write(path, text[:10], **named)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "write_text", full)
        assert inspect(exported(), "--output", output) == 2
    assert f"cannot write {output}: No space left" in capsys.readouterr().err
    assert output.read_text() == "of last time" and os.listdir(tmp_path) == ["answer"]
    assert inspect(exported(), "--output", output) == 0
    assert output.read_text().startswith("SavedModel") and output.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["answer"]


def test_a_full_disk_is_told_with_the_outputs_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(exported(), "--output", "/dev/full") == 2
    assert "cannot write /dev/full: No space left" in capsys.readouterr().err

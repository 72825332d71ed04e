"""Which line of a program made an op: read from what TensorFlow saves beside a model."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest
import tensorflow as tf

from tests.model_files.exported import Step, exported
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.model_files.source_lines import FILE, SourceLines
from tf_wu_shard.model_files.types import Model
from tf_wu_shard.tensorflow_private import model_protos


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("model")
    step = Step("adam")
    options = tf.saved_model.SaveOptions(save_debug_info=True, experimental_custom_gradients=False)
    tf.saved_model.save(step, str(folder), signatures={"train": step.train}, options=options)
    return read_model(folder)


def trace(*frames: tuple[int, int, str], files: tuple[str, ...]) -> SourceLines:
    """The older form, in which each trace has its own frames."""
    info: Any = model_protos.debug_info()
    info.files.extend(files)
    for index, line, function in frames:
        info.traces["op@f"].file_line_cols.add(file_index=index, line=line, func=function)
    return SourceLines(info)


def test_an_op_is_made_by_the_users_own_line(model: Model) -> None:
    (function,) = (name for name in model.functions if name.startswith("__inference_train_"))
    assert model.source_lines is not None
    line = model.source_lines.line("adam/Square", function)
    assert line.startswith("exported.py:") and line.endswith(" in train")
    assert model.source_lines.line("absent", function) == ""


def test_a_model_without_debug_info_has_no_lines() -> None:
    model = read_model(exported())
    assert model.source_lines is None and model.notes == ()


def test_debug_info_that_cannot_be_read_is_said(tmp_path: pathlib.Path) -> None:
    copy = shutil.copytree(exported(), tmp_path / "model")
    (copy / FILE).parent.mkdir()
    (copy / FILE).write_bytes(b"\xff" * 9)
    (note,) = read_model(copy).notes
    assert "is no GraphDebugInfo" in note and "without the lines" in note


def test_the_older_form_is_read_too() -> None:
    files = ("/home/a/train.py", "/usr/lib/python3/dist-packages/keras/adam.py")
    lines = trace((0, 5, "step"), (1, 9, "update"), files=files)
    assert lines.line("op", "f") == "train.py:5 in step"
    assert lines.line("op") == lines.line("op", "g") == ""


def test_where_all_lines_are_of_packages_the_innermost_is_told() -> None:
    files = ("/x/site-packages/a.py", "/x/site-packages/b.py")
    assert trace((0, 5, "f"), (1, 9, ""), files=files).line("op", "f") == "b.py:9"


def test_a_frame_of_no_file_is_left_out() -> None:
    assert trace((7, 5, "f"), (-1, 5, "f"), files=("a.py",)).line("op", "f") == ""

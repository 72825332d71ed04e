"""What cannot be read is one error in one line, whatever the file holds."""

from __future__ import annotations

import os
import pathlib

import pytest

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.model_files import contents
from tf_wu_shard.model_files.contents import parse, parse_text, read_bytes
from tf_wu_shard.tensorflow_private import model_protos


def test_a_file_is_read_whole_up_to_its_limit(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path) == read_bytes(path, limit=5) == b"12345"
    with pytest.raises(ModelFileError, match="it has 5 bytes, more than 4"):
        read_bytes(path, limit=4)


def test_what_is_no_ordinary_file_is_told_at_once(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("pipe", "no ordinary file"),
        ("", "no ordinary file|Is a directory"),
        ("missing", "No such file"),
        ("a\0b", "null"),
    ):
        with pytest.raises(ModelFileError, match=words):
            read_bytes(tmp_path / name)


def test_a_message_comes_back_and_bytes_that_are_none_are_told_by_their_name() -> None:
    graph = model_protos.graph_def()
    graph.node.add(name="x", op="Placeholder")
    assert parse(model_protos.graph_def(), graph.SerializeToString(), "it") == graph
    with pytest.raises(ModelFileError, match="'f' is no GraphDef: truncated, corrupted"):
        parse(model_protos.graph_def(), b"\xff\xff\xff", "'f'")


def test_text_that_is_no_message_is_told_with_its_place_and_not_quoted() -> None:
    good = b'node { name: "x" op: "Placeholder" }'
    assert parse_text(model_protos.graph_def(), good, "it").node[0].name == "x"
    with pytest.raises(ModelFileError) as raised:
        parse_text(model_protos.graph_def(), b"node {\n  \x1b[2Jevil: 3 }", "'f'")
    assert "'f' is no GraphDef in text form" in str(raised.value)
    assert "evil" not in str(raised.value) and "\x1b" not in str(raised.value)
    with pytest.raises(ModelFileError, match=r"\(at line 2, column 3\)"):
        parse_text(model_protos.graph_def(), b"node {\n  evil: 3 }", "'f'")
    with pytest.raises(ModelFileError, match="in text form"):
        parse_text(model_protos.graph_def(), b"\xff\xfe", "'f'")


def test_text_that_would_take_minutes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_TEXT_BYTES", 4)
    with pytest.raises(ModelFileError, match="has 5 bytes of text, more than 4: give the binary"):
        parse_text(model_protos.graph_def(), b"#####", "it")

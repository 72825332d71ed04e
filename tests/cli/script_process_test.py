"""A script that never trains is told apart from one that fails, whatever it does to its process."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tf_wu_shard.cli.script_process import ScriptError, inspect_script
from tf_wu_shard.inspection.answers.answer import Inspection
from tf_wu_shard.inspection.steps.grounds import Question

Ask = Callable[..., Inspection]


@pytest.fixture
def ask(tmp_path: pathlib.Path) -> Ask:
    """What comes of a script, by its text and its arguments."""

    def asked(text: str, *arguments: str) -> Inspection:
        script = tmp_path / "script.py"
        script.write_text(text, encoding="utf-8")
        return inspect_script(str(script), arguments, Question())

    return asked


def test_one_that_never_imports_tensorflow_says_so(ask: Ask, capfd: Any) -> None:
    found = ask("import sys\nprint('own words', sys.argv[1:])", "--steps", "3")
    assert found.functions == () and "never imported TensorFlow" in found.how
    own = capfd.readouterr()
    # Its output is beside the answer, not in it.
    assert "own words ['--steps', '3']" in own.err and own.out == ""


def test_it_reads_nothing(ask: Ask) -> None:
    with pytest.raises(ScriptError, match=r"script\.py.*EOF"):
        ask("input()")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise ValueError('no such data')", "no such data"),
        ("import sys; sys.exit('wrong\\x1b[2Jusage')", "wrong"),
        ("import sys; sys.exit(3)", "3"),
        ("import os; os._exit(5)", "5 before it trained"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("def broken(:", "invalid syntax"),
    ],
    ids=("error", "words", "status", "at once", "killed", "no program"),
)
def test_one_that_fails_is_told_in_its_own_words(ask: Ask, text: str, said: str) -> None:
    with pytest.raises(ScriptError) as caught:
        ask(text)
    assert "script.py" in str(caught.value) and said in str(caught.value)
    assert str(caught.value).isprintable()


def test_one_that_ends_well_has_not_failed(ask: Ask) -> None:
    assert "never imported TensorFlow" in ask("import sys; sys.exit(0)").how


def test_an_answer_that_it_spoilt_is_none(ask: Ask) -> None:
    own = "next(a for a in open('/proc/self/cmdline').read().split('\\0') if a.endswith('answer'))"
    with pytest.raises(ScriptError, match="no answer comes of it"):
        ask(f"import pathlib\npathlib.Path({own}).write_bytes(b'nothing')")

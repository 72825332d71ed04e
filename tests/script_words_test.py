"""What ended a script is told in one line of its own words."""

from __future__ import annotations

import pathlib

import pytest

from tf_wu_shard.script_words import in_its_words, text_of


def ended(path: pathlib.Path, text: str) -> str:
    """What is said of a script with this text."""
    path.write_text(text, encoding="utf-8")
    try:
        exec(compile(text, str(path), "exec"), {})
    except BaseException as error:
        return in_its_words("run.py" if path.name == "other.py" else str(path), error, "it trained")
    raise AssertionError("it did not end")


def test_an_error_has_the_last_line_of_the_script_that_it_passed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.py"
    said = ended(path, "import json\n\njson.loads('{')\n")
    assert said.startswith(f"{path}, line 3 raised JSONDecodeError: Expecting")
    assert "\n" not in said


def test_of_several_lines_that_it_passed_the_innermost_is_told(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.py"
    text = "def step():\n    return 1 // 0\n\nstep()\n"
    assert ended(path, text).startswith(f"{path}, line 2 raised ZeroDivisionError: ")


def test_an_error_of_another_file_has_no_line(tmp_path: pathlib.Path) -> None:
    said = ended(tmp_path / "other.py", "raise ValueError('first\\nsecond')\n")
    assert said == "run.py raised ValueError: first"


def test_a_script_that_python_cannot_read_has_the_line_of_that(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.py"
    assert ended(path, "x = 1\nif x\n").startswith(f"{path}, line 2 raised SyntaxError")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("None", "status 1 before it trained"),
        ("0", "status 0 before it trained"),
        ("3", "status 3 before it trained"),
        ("'no data\\nhere'", "status 1 before it trained (no data)"),
    ],
)
def test_a_script_that_ends_itself_has_its_status(
    tmp_path: pathlib.Path, code: str, said: str
) -> None:
    path = tmp_path / "run.py"
    assert ended(path, f"raise SystemExit({code})\n") == f"{path} ended with {said}"


def test_an_error_without_words_or_whose_words_fail_has_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.py"
    assert ended(path, "raise ValueError\n") == f"{path}, line 1 raised ValueError"
    odd = "class Odd(Exception):\n    def __str__(self):\n        raise KeyError\nraise Odd()\n"
    assert ended(path, odd) == f"{path}, line 4 raised Odd"
    assert text_of(3) == "3"

"""Interpreters are those that can make environments, one for each version, wherever they are."""

from __future__ import annotations

import pathlib
import sys

import pytest

from tools.version_pairs import interpreters as found_here
from tools.version_pairs.interpreters import interpreters

OWN = "{}.{}".format(*sys.version_info[:2])


def stand_in(place: pathlib.Path, answer: str) -> pathlib.Path:
    """A program in an interpreter's place."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    place.chmod(0o755)
    return place


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    """The only folder of PATH; no other place has interpreters but this test's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'absent'}:{folder}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return folder


def test_the_own_interpreter_is_one(path: pathlib.Path) -> None:
    assert interpreters() == {OWN: pathlib.Path(sys.executable)}


def test_path_and_pyenv_are_looked_through_and_the_first_of_a_version_counts(
    path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    first = stand_in(path / "python3.98", "echo 3 98")
    newest = stand_in(tmp_path / "pyenv/versions/3.99.1/bin/python", "echo 3 99")
    stand_in(tmp_path / "pyenv/versions/3.98.0/bin/python", "echo 3 98")
    stand_in(path / "python3.97-config", "echo 3 97")
    assert [*interpreters()] == [OWN, "3.98", "3.99"]
    assert interpreters()["3.98"] == first and interpreters()["3.99"] == newest


@pytest.mark.parametrize(
    "answer", ["echo 3 10", "echo pyenv: not active >&2; exit 127", "exit 1"], ids=str
)
def test_what_is_too_old_or_does_not_run_is_none(path: pathlib.Path, answer: str) -> None:
    stand_in(path / "python3.99", answer)
    assert [*interpreters()] == [OWN]


def test_the_oldest_is_the_one_that_the_package_asks_for() -> None:
    setup = pathlib.Path(found_here.__file__).parents[2] / "setup.py"
    oldest = ".".join(map(str, found_here.OLDEST))
    assert f'python_requires=">={oldest}"' in setup.read_text(encoding="utf-8")

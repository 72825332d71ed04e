"""`make` builds the virtual environment again exactly when the one there cannot be trusted."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from tests.project.imports import ROOT

INPUTS = ("setup.py", "pyproject.toml", "constraints.txt")


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A checkout whose environment looks whole; its interpreter is a stand-in that says so."""
    place = tmp_path.resolve() / "checkout"
    (place / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", place)
    for file in INPUTS:
        (place / file).touch()
        os.utime(place / file, (1_000, 1_000))
    python = place / ".venv/bin/python"
    python.write_text("#!/bin/sh\necho whole\n")
    python.chmod(0o755)
    (place / ".venv/built-in").write_text(f"{place}\n")
    return place


def _rebuilds(checkout: pathlib.Path) -> bool:
    planned = subprocess.run(
        ["make", "--dry-run", "lint"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout
    assert "ruff check" in planned
    return "-m venv .venv" in planned


def test_a_whole_environment_is_kept(checkout: pathlib.Path) -> None:
    assert not _rebuilds(checkout)


def test_a_missing_environment_is_built(checkout: pathlib.Path) -> None:
    shutil.rmtree(checkout / ".venv")
    assert _rebuilds(checkout)


@pytest.mark.parametrize("file", INPUTS)
def test_an_environment_older_than_what_it_is_made_from_is_rebuilt(
    checkout: pathlib.Path, file: str
) -> None:
    later = (checkout / ".venv/built-in").stat().st_mtime + 10
    os.utime(checkout / file, (later, later))
    assert _rebuilds(checkout)


def test_a_half_made_environment_is_rebuilt(checkout: pathlib.Path) -> None:
    (checkout / ".venv/built-in").unlink()
    assert _rebuilds(checkout)


def test_a_moved_checkout_gets_a_new_environment(checkout: pathlib.Path) -> None:
    moved = checkout.rename(checkout.with_name("moved"))
    assert _rebuilds(moved)


@pytest.mark.parametrize("script", ["#!/nowhere/python\n", "#!/bin/sh\nexit 1\n"])
def test_a_broken_interpreter_means_a_new_environment(checkout: pathlib.Path, script: str) -> None:
    (checkout / ".venv/bin/python").write_text(script)
    assert _rebuilds(checkout)

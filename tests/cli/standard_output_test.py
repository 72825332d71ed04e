"""What becomes of an answer that standard output does not take as it is."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import IO

import pytest

from tests.cli.command import python
from tests.project.imports import ROOT

# As a command does: the answer, then its exit status.
_SHOW = (
    "import sys; from tf_wu_shard.cli.standard_output import show; from tf_wu_shard.errors import"
    " OptionError\ntry: show({})\nexcept OptionError as e: sys.exit(str(e))"
)
_LONG = "'line\\n' * 100_000"


def shown(answer: str, output: int | IO[str]) -> subprocess.CompletedProcess[str]:
    """Shows an answer, given as Python code, on an output."""
    command = [sys.executable, "-c", _SHOW.format(answer)]
    return subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("answer", ["'short'", _LONG])
def test_a_reader_that_leaves_early_is_no_error(answer: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = shown(answer, writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("answer", ["'short'", _LONG])
def test_a_full_disk_is_told_in_one_line(answer: str) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = shown(answer, full)
    assert done.returncode == 1
    assert done.stderr == "cannot write the answer: No space left on device\n"


def test_what_the_encoding_lacks_is_escaped(tmp_path: pathlib.Path) -> None:
    code = "import sys; sys.stdout.reconfigure(encoding='ascii'); " + _SHOW.format("'w → é'")
    done = python("-c", code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("w \\u2192 \\xe9\n", "")


def test_a_page_keeps_the_encoding_that_it_says(tmp_path: pathlib.Path) -> None:
    code = "import sys; sys.stdout.reconfigure(encoding='latin-1'); " + _SHOW.format("'é', 'utf-8'")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.stdout.decode("utf-8") == "é\n"


def test_without_standard_output_nothing_is_shown() -> None:
    code = "import sys; sys.stdout = None; " + _SHOW.format("'answer'")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

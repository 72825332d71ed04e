"""Which Python interpreters this machine has, one for each minor version that is supported."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

# As setup.py has it.
OLDEST = (3, 11)

# An environment needs these two; an interpreter without its libraries fails here already.
_QUESTION = "import ensurepip, sys, venv; print(*sys.version_info[:2])"


def interpreters() -> dict[str, pathlib.Path]:
    """An interpreter of each minor version, such as "3.12", oldest first."""
    found: dict[tuple[int, int], pathlib.Path] = {}
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None and version >= OLDEST:
            found.setdefault(version, candidate)
    return {f"{major}.{minor}": found[major, minor] for major, minor in sorted(found)}


def _candidates() -> Iterator[pathlib.Path]:
    yield pathlib.Path(sys.executable)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.path.isdir(folder):
            yield from sorted(
                file
                for file in pathlib.Path(folder).iterdir()
                if re.fullmatch(r"python3\.\d+", file.name)
            )
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    yield from sorted((pyenv / "versions").glob("3.*/bin/python"))


def _version(python: pathlib.Path) -> tuple[int, int] | None:
    """The version, or None of what cannot make environments; pyenv's stand-ins need not run."""
    try:
        asked = subprocess.run([python, "-c", _QUESTION], capture_output=True, text=True)
    except OSError:
        return None
    if asked.returncode != 0:
        return None
    major, minor = asked.stdout.split()
    return int(major), int(minor)

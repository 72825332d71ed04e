"""Running the command line and the interpreter as a shell does, each in a process of its own."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from tests.project.imports import ROOT

_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def wu_shard(*arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs `wu-shard ARGUMENTS`."""
    return python("-m", "tf_wu_shard.cli.main", *arguments, cwd=cwd)


def python(*arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs `python ARGUMENTS`."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=_ENVIRONMENT, capture_output=True, text=True
    )

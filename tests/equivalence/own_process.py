"""Runs a module of this folder in a process of its own and takes what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def answer_of(module: str, *arguments: str) -> Any:
    """What `python -m tests.equivalence.MODULE` prints last, as one line of JSON.

    oneDNN takes no part: it picks a kernel by what it sees of a graph, and kernels round apart.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"tests.equivalence.{module}", *arguments],
        env=os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])

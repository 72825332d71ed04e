"""Runs a module of this folder in a process of its own and takes what it prints."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.selection import selected

# From a ground to what came of its scenarios, by name.
OnGround = Callable[[str], dict[str, Any]]


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


def scenarios_of(request: pytest.FixtureRequest, module: str) -> OnGround:
    """A function from a ground to what came of the scenarios that tests ask about there.

    One process runs all of a ground's, when it is first asked for.

    Args:
        request: Of a fixture of the tests, whose parameters are called ground and name.
        module: Has the scenarios.
    """

    @functools.cache
    def of(ground: str) -> dict[str, Any]:
        names = selected(request, "name", ground=ground)
        found: dict[str, Any] = answer_of("scenarios_run", f"{module}@{ground}", *names)
        return found

    return of

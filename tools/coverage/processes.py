"""Runs cells of the coverage matrix in processes, one of each dialect at a time."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from tools.coverage.table import DIALECTS, Cell

ROOT = pathlib.Path(__file__).parents[2]

# Traced functions of finished trainings are not all freed, so a process takes this many at most.
_CELLS_IN_A_PROCESS = 120

# Kernels that do not fuse and round by what they see around an operation.
_ENVIRONMENT = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}


def cells_of(wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str, str], Cell]:
    """Trains cells under every dialect.

    Args:
        wanted: Rows and features.

    Returns:
        The cells by dialect, row and feature.

    Raises:
        RuntimeError: A process died.
    """
    found: dict[tuple[str, str, str], Cell] = {}
    with concurrent.futures.ThreadPoolExecutor(len(DIALECTS)) as pool:
        for cells in pool.map(lambda dialect: _cells_under(dialect, wanted), DIALECTS):
            found |= cells
    return found


def _cells_under(
    dialect: str, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str, str], Cell]:
    found: dict[tuple[str, str, str], Cell] = {}
    for start in range(0, len(wanted), _CELLS_IN_A_PROCESS):
        job = {"dialect": dialect, "cells": wanted[start : start + _CELLS_IN_A_PROCESS]}
        done = subprocess.run(
            [sys.executable, "-m", "tools.coverage.run", json.dumps(job)],
            cwd=ROOT,
            env=os.environ | _ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"the process of {dialect} ended with {done.returncode}:\n{done.stderr[-4000:]}"
            )
        for line in done.stdout.splitlines():
            row, feature, text, notes = json.loads(line)
            found[dialect, row, feature] = Cell(text, tuple(notes))
    return found

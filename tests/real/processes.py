"""Runs programs without and with the flag, in processes, and holds the two against each other."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.real.outcome import Outcome, Run, judged
from tests.real.program import WORKERS
from tests.workers.processes import launch

_ROOT = pathlib.Path(__file__).parents[2]

# Traced functions of finished programs are not all freed, so a process takes this many at most.
_PROGRAMS_IN_A_PROCESS = 15

# A program takes a few seconds; one that takes a minute hangs.
_SECONDS_A_PROGRAM = 60

_WORKERS = 2

# Kernels that do not fuse, and round otherwise, by what they see around an operation.
_ENVIRONMENT = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}


def outcomes(ground: str, names: Sequence[str]) -> dict[str, Outcome]:
    """Runs programs on a ground, unsharded and sharded.

    Returns:
        What came of each, by name.
    """
    with tempfile.TemporaryDirectory() as place:
        runs = {sharded: _runs(ground, names, sharded, place) for sharded in (False, True)}
        return {name: judged(ground, runs[False][name], runs[True][name]) for name in names}


def _runs(ground: str, names: Sequence[str], sharded: bool, place: str) -> dict[str, Run]:
    folder = pathlib.Path(place) / f"{ground} {sharded}"
    folder.mkdir()
    # Each worker has a folder of its own.
    folders = [folder / str(i) for i in range(_WORKERS)] if ground == WORKERS else [folder]
    waiting = list(names)
    died: dict[str, str] = {}
    while waiting:
        some = waiting[:_PROGRAMS_IN_A_PROCESS]
        job = {"ground": ground, "sharded": sharded, "programs": some, "folder": str(folder)}
        run = _workers if ground == WORKERS else _process
        wrong = run(job, _SECONDS_A_PROGRAM * (1 + len(some)))
        left = [name for name in some if not all((f / f"{name}.json").exists() for f in folders)]
        if left and wrong:
            # The first of them took the process along; the others run again without it.
            died[left[0]] = wrong
            left = left[1:]
        waiting = left + waiting[_PROGRAMS_IN_A_PROCESS:]
    return {name: _read(folders, name, died.get(name, "")) for name in names}


def _workers(job: dict[str, Any], seconds: float) -> str:
    """Runs a job as each worker of a cluster; returns what went wrong, or ""."""
    try:
        done = launch("tests.real.program_run", [json.dumps(job)], _WORKERS, seconds)
    except AssertionError as error:
        return str(error)
    return "\n".join(worker.shown for worker in done if worker.returncode)


def _process(job: dict[str, Any], seconds: float) -> str:
    """Runs a job; returns what went wrong, or ""."""
    command = [sys.executable, "-m", "tests.real.program_run", json.dumps(job)]
    environment = os.environ | _ENVIRONMENT
    try:
        done = subprocess.run(
            command,
            cwd=_ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"it ran for longer than {seconds:.0f} s"
    return f"exit status {done.returncode}\n{done.stderr[-4000:]}" if done.returncode else ""


def _read(folders: Sequence[pathlib.Path], name: str, died: str) -> Run:
    """What a program left in the folder of each process; facts but for errors are of the first."""
    if died:
        return Run(error=died)
    facts = [json.loads((folder / f"{name}.json").read_text()) for folder in folders]
    arrays: dict[str, np.ndarray] = {}
    for i, folder in enumerate(folders):
        with np.load(folder / f"{name}.npz") as found:
            arrays |= {f"{key} of process {i}": found[key] for key in found}
    error = next((fact["error"] for fact in facts if fact["error"]), "")
    return Run(**facts[0] | {"error": error}, arrays=arrays)

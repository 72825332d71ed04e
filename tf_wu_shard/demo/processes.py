"""Starts the process of one run, follows its progress, and returns what it left behind.

It promises that a failed run is an error that says where its log is, and that no process outlives
an interruption.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import TextIO

from tf_wu_shard.demo import runs
from tf_wu_shard.demo.runs import DemoError, Mode, Run, Tensors

_LOG_LINES = 12

_running: set[subprocess.Popen[str]] = set()


def train(
    task: str,
    mode: Mode,
    *,
    replicas: int,
    quick: bool,
    folder: pathlib.Path,
    progress: Callable[[dict[str, float]], None],
) -> tuple[Run, Tensors]:
    """Trains in a process of its own.

    Args:
        task: A name in `runs.TITLES`.
        mode: How the run updates its weights.
        replicas: Number of logical CPU devices.
        quick: Whether to take the small version of the task.
        folder: Where the run's record, tensors and log go; made if it is missing.
        progress: Called with every message of the run: first its number of steps and of
            parameters, then each step's number, loss and seconds.

    Returns:
        The run and its final tensors.

    Raises:
        DemoError: The process failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    with log.open("w", encoding="utf-8") as errors:
        status = _run(_command(task, mode, replicas, quick, folder), errors, progress)
    if status:
        last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-_LOG_LINES:])
        raise DemoError(
            f"the {mode.value} run of {task} ended with status {status};"
            f" its log {log} ends with\n{last}"
        )
    return runs.load(folder)


def _command(task: str, mode: Mode, replicas: int, quick: bool, folder: pathlib.Path) -> list[str]:
    return [
        *(sys.executable, "-m", "tf_wu_shard.demo.worker"),
        *("--task", task, "--mode", mode.value, "--replicas", str(replicas)),
        *("--folder", str(folder)),
        *(["--quick"] if quick else []),
    ]


def _run(command: list[str], errors: TextIO, progress: Callable[[dict[str, float]], None]) -> int:
    """Runs a command to its end and returns its status; an exception ends the command too."""
    # A GPU, if there is one, has no part in runs on logical CPU devices.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        _running.add(process)
        try:
            for line in process.stdout:
                # Whatever else a library prints is not for us.
                if line.startswith("{"):
                    progress(json.loads(line))
        except BaseException:
            process.terminate()
            raise
        finally:
            _running.discard(process)
    return process.returncode


def stop_all() -> None:
    """Ends all runs under way, in whatever thread; each fails with a `DemoError` there."""
    for process in tuple(_running):
        process.terminate()

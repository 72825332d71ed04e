"""Starts the process of one run, follows its progress, and returns what it left behind.

It promises that a failed run is an error that says where its log is, and that no process outlives
an interruption.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import TextIO

from tf_wu_shard.demo import runs
from tf_wu_shard.demo.runs import DemoError, Mode, Run, Tensors

# Called with task, mode and every message of a run: first its number of steps and of parameters,
# then each step's number, loss and seconds.
Progress = Callable[[str, Mode, dict[str, float]], None]

# A run and its final tensors.
Training = tuple[Run, Tensors]

_LOG_LINES = 12

_running: set[subprocess.Popen[str]] = set()


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Trains tasks, each run in a process of its own.

    Attributes:
        replicas: Number of logical CPU devices.
        quick: Whether to take the small version of each task.
        folder: The folders of the runs' records, tensors and logs are made below it.
    """

    replicas: int
    quick: bool
    folder: pathlib.Path

    def train(self, task: str, mode: Mode, progress: Progress) -> Training:
        """Trains a task in one mode.

        Args:
            task: A name in `runs.TITLES`.
            mode: How the run updates its weights.
            progress: What to call with its messages.

        Raises:
            DemoError: The process failed.
        """
        folder = self.folder / f"{task}-{mode.value}"
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log.txt"
        command = [
            *(sys.executable, "-m", "tf_wu_shard.demo.worker"),
            *("--task", task, "--mode", mode.value, "--replicas", str(self.replicas)),
            *("--folder", str(folder)),
            *(["--quick"] if self.quick else []),
        ]
        with log.open("w", encoding="utf-8") as errors:
            status = _run(command, errors, lambda message: progress(task, mode, message))
        if status:
            last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-_LOG_LINES:])
            raise DemoError(
                f"the {mode.value} run of {task} ended with status {status};"
                f" its log {log} ends with\n{last}"
            )
        return runs.load(folder)


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

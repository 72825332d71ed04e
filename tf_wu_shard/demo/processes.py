"""Starts the processes of one run, follows its progress, and returns what it left behind.

It promises that a failed run is an error that has its last words, and that no process outlives an
interruption.
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

from tf_wu_shard.bench.conversation import WorkerError
from tf_wu_shard.demo import clusters, runs, under_way
from tf_wu_shard.demo.runs import ON_WORKERS, DemoError, Mode, Run, Tensors

# Called with task, mode and every message of a run: first its number of steps and of parameters,
# then each step's number, loss and seconds.
Progress = Callable[[str, Mode, dict[str, float]], None]

# A run and its final tensors.
Training = tuple[Run, Tensors]

_LOG_LINES = 12

# As many as two cores bear; two sum up in one order alone, so that they agree to the bit.
_WORKERS, _QUICK_WORKERS = 4, 2

# A GPU, if there is one, has no part in runs on CPU devices.
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Trains tasks, each run in a process of its own, or in several where its replicas are such.

    Attributes:
        replicas: Number of logical CPU devices, where replicas are that.
        quick: Whether to take the small version of each task.
        folder: The folders of the runs' records, tensors and logs are made below it.
    """

    replicas: int
    quick: bool
    folder: pathlib.Path

    def replicas_of(self, task: str) -> int:
        """Number of replicas of a task."""
        if task in ON_WORKERS:
            return _QUICK_WORKERS if self.quick else _WORKERS
        return self.replicas

    def train(self, task: str, mode: Mode, progress: Progress) -> Training:
        """Trains a task in one mode.

        Args:
            task: A name in `runs.TITLES`.
            mode: How the run updates its weights.
            progress: What to call with its messages.

        Raises:
            DemoError: A process failed.
        """
        folder = self.folder / f"{task}-{mode.value}"
        folder.mkdir(parents=True, exist_ok=True)
        if task in ON_WORKERS:
            return self._train_on_workers(task, mode, folder, progress)
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

    def _train_on_workers(
        self, task: str, mode: Mode, folder: pathlib.Path, progress: Progress
    ) -> Training:
        try:
            return clusters.train(
                task,
                mode,
                workers=self.replicas_of(task),
                quick=self.quick,
                folder=folder,
                environment=_ENVIRONMENT,
                progress=lambda message: progress(task, mode, message),
            )
        except WorkerError as error:
            raise DemoError(f"the {mode.value} run of {task}: {error}") from error


def _run(command: list[str], errors: TextIO, progress: Callable[[dict[str, float]], None]) -> int:
    """Runs a command to its end and returns its status; an exception ends the command too."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | _ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        try:
            with under_way.ended_by(process.terminate):
                for line in process.stdout:
                    # Whatever else a library prints is not for us.
                    if line.startswith("{"):
                        progress(json.loads(line))
        except BaseException:
            process.terminate()
            raise
    return process.returncode

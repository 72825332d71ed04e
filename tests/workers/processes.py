"""Runs a program as the workers of one cluster, each a process with a TF_CONFIG of its own.

    done = launch("tests.workers.some_run", ["argument"], workers=2, seconds=120)

`running` hands out the workers while they run, for tests that kill one, stop one or wait for what
one says. No worker outlives its `with` block. What a worker trains, and on which devices, is the
program's own matter.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf_wu_shard import cluster_addresses

_ROOT = pathlib.Path(__file__).parents[2]

# oneDNN picks a kernel by what it sees of a graph, and kernels round apart. A line is to be seen as
# soon as it is printed.
_ENVIRONMENT = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
}

_SHOWN_CHARACTERS = 4000
_SECONDS_BETWEEN_LOOKS = 0.02


@dataclasses.dataclass(frozen=True)
class CompletedWorker:
    """A worker that has ended.

    Attributes:
        index: Its index in the cluster.
        returncode: Its exit status; -N if signal N ended it.
        output: What it wrote to its standard output.
        errors: What it wrote to its standard error.
    """

    index: int
    returncode: int
    output: str
    errors: str

    @property
    def answer(self) -> Any:
        """The last line of its output, read as JSON.

        Raises:
            AssertionError: If it failed or printed nothing; the message shows what it wrote.
        """
        lines = self.output.splitlines()
        if self.returncode or not lines:
            raise AssertionError(f"{self.shown}\n--- and should have ended with a line of JSON")
        return json.loads(lines[-1])

    @property
    def shown(self) -> str:
        """How it ended, and the end of what it wrote, for the message of a failure."""
        return f"worker {self.index} ended with {self.returncode}{_shown(self.output, self.errors)}"


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker that was started.

    Attributes:
        index: Its index in the cluster.
        process: It; its streams are files.
        output: The file of its standard output.
        errors: The file of its standard error.
    """

    index: int
    process: subprocess.Popen[bytes]
    output: pathlib.Path
    errors: pathlib.Path

    @property
    def runs(self) -> bool:
        """Whether it has not ended; one that is stopped has not."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Ends it by SIGKILL: TensorFlow takes SIGTERM for a notice and goes on."""
        self.process.kill()

    def stop(self) -> None:
        """Stops it by SIGSTOP: it does nothing, and its connections stay open."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets it run again after `stop`."""
        self.process.send_signal(signal.SIGCONT)

    def line(self, text: str, seconds: float) -> str:
        """Waits for a whole line of its standard output that holds a text.

        Args:
            text: The text.
            seconds: How long to wait at most.

        Returns:
            The first such line, without its end; it may be older than the call.

        Raises:
            AssertionError: If it ends without such a line, or the time is over; the message shows
                what it wrote.
        """
        ended = _until(lambda: not self.runs or bool(self._lines(text)), seconds)
        found = self._lines(text)  # its last words may be younger than the last look
        if not found:
            why = "ended without" if ended else f"took more than {seconds:g} s for"
            raise AssertionError(f"worker {self.index} {why} a line with {text!r}{self.shown}")
        return found[0]

    @property
    def shown(self) -> str:
        """The end of what it has written so far, for the message of a failure."""
        return _shown(_text(self.output), _text(self.errors))

    def _lines(self, text: str) -> list[str]:
        whole, _, _ = _text(self.output).rpartition("\n")
        return [line for line in whole.splitlines() if text in line]


def launch(
    program: str | pathlib.Path,
    arguments: Sequence[str] = (),
    workers: int = 2,
    seconds: float = 300,
    environment: Mapping[str, str] | None = None,
    beside: Sequence[str] = (),
) -> list[CompletedWorker]:
    """Runs a program as every worker of a cluster, to the end.

    Args:
        program: A module's name, or the path of a script.
        arguments: What each worker gets on its command line.
        workers: How many there are.
        seconds: How long all may take together; what one waits for, another may never send.
        environment: Variables to set besides, for every worker.
        beside: Types of tasks of which the cluster has one each, such as "evaluator"; they come
            after the workers.

    Returns:
        The workers in the order of their indices. One that failed is among them.

    Raises:
        AssertionError: If one still runs when the time is over; the message shows what every worker
            wrote. All are killed then.
    """
    with running(program, arguments, workers, environment, beside) as started:
        return completed(started, seconds)


@contextlib.contextmanager
def running(
    program: str | pathlib.Path,
    arguments: Sequence[str] = (),
    workers: int = 2,
    environment: Mapping[str, str] | None = None,
    beside: Sequence[str] = (),
) -> Iterator[list[Worker]]:
    """Starts a program as every worker of a cluster, and kills what is left of them in the end.

    Args:
        program: A module's name, or the path of a script.
        arguments: What each worker gets on its command line.
        workers: How many there are.
        environment: Variables to set besides, for every worker.
        beside: Types of tasks of which the cluster has one each; they come after the workers.

    Yields:
        The workers in the order of their indices.
    """
    command = [str(program)] if isinstance(program, pathlib.Path) else ["-m", program]
    with contextlib.ExitStack() as held:
        ports = held.enter_context(cluster_addresses.held_ports(workers + len(beside)))
        folder = pathlib.Path(held.enter_context(tempfile.TemporaryDirectory()))
        started = []
        for index in range(workers + len(beside)):
            files = folder / f"{index}.out", folder / f"{index}.err"
            with files[0].open("wb") as output, files[1].open("wb") as errors:
                process = subprocess.Popen(
                    [sys.executable, *command, *arguments],
                    env={
                        **os.environ,
                        **_ENVIRONMENT,
                        **(environment or {}),
                        "TF_CONFIG": _task_config(ports, index, beside),
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                )
            # Callbacks run backwards: it is killed, then waited for.
            held.callback(process.wait)
            held.callback(process.kill)
            started.append(Worker(index, process, *files))
        yield started


def _task_config(ports: Sequence[int], index: int, beside: Sequence[str]) -> str:
    """The `TF_CONFIG` of one task; the last ones are of other types than workers."""
    workers = len(ports) - len(beside)
    config = json.loads(cluster_addresses.task_config(ports[:workers], index))
    for kind, port in zip(beside, ports[workers:], strict=True):
        config["cluster"][kind] = [f"127.0.0.1:{port}"]
    if index >= workers:
        config["task"] = {"type": beside[index - workers], "index": 0}
    return json.dumps(config)


def completed(workers: Sequence[Worker], seconds: float) -> list[CompletedWorker]:
    """Waits until all workers have ended.

    Args:
        workers: Of `running`.
        seconds: How long to wait for all together.

    Returns:
        The workers in the given order.

    Raises:
        AssertionError: If one still runs when the time is over; the message shows what every worker
            wrote.
    """
    if not _until(lambda: not any(worker.runs for worker in workers), seconds):
        states = [f"{w.index}: {'runs' if w.runs else w.process.returncode}" for w in workers]
        raise AssertionError(
            f"after {seconds:g} s not all workers have ended ({', '.join(states)})"
            + "".join(f"\nworker {worker.index}{worker.shown}" for worker in workers)
        )
    return [
        CompletedWorker(w.index, w.process.wait(), _text(w.output), _text(w.errors))
        for w in workers
    ]


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether something comes to hold within a time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return True


def _text(file: pathlib.Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _shown(output: str, errors: str) -> str:
    return f"\n--- output\n{output[-_SHOWN_CHARACTERS:]}\n--- errors\n{errors[-_SHOWN_CHARACTERS:]}"

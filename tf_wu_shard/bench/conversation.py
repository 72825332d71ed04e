"""One parent, several measured processes, one of them at work at a time.

A worker process gets commands as JSON lines on its standard input and answers each with one JSON
line on what was its standard output; while it waits it is blocked and costs no CPU. Anything else
that it prints goes to its standard error, whose end is shown if it dies. Nothing here knows what
the commands mean.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from tf_wu_shard.errors import OptionError, WuShardError

_SHOWN_LINES = 15


class WorkerError(WuShardError, RuntimeError):
    """A measured process failed; the message has its own words."""


class Worker:
    """The parent's end: starts the process, asks it, ends it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: pathlib.Path | None = None,
    ) -> None:
        """Starts the process; it does nothing until it is asked.

        Args:
            name: For error messages.
            command: The program and its arguments.
            environment: All its environment variables; the parent's when None.
            folder: Its working directory; the parent's when None.
        """
        self.name = name
        # It lives as long as the process; `close` closes both.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            cwd=folder,
            text=True,
        )

    def ask(self, command: str, **arguments: Any) -> Any:
        """Sends a command and blocks until its answer is there.

        Args:
            command: The command's name.
            **arguments: What it needs, as JSON knows it.

        Returns:
            The answer, as JSON knows it.

        Raises:
            WorkerError: The command failed, or the process died.
            OptionError: The worker says that it was asked for something impossible.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(self._last_words(command))
        answer = json.loads(line)
        if "usage" in answer:
            raise OptionError(answer["usage"])
        if "error" in answer:
            raise WorkerError(f"{self.name}: {command} failed: {answer['error']}")
        return answer["value"]

    def kill(self) -> None:
        """Ends the process; whoever waits for its answer, in any thread, gets an error."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process, which may be at work."""
        self.kill()
        # Closes its pipes too.
        with self._process:
            pass
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _last_words(self, command: str) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()[-_SHOWN_LINES:]
        said = "\n".join(["; it said last:", *lines]) if lines else " without a word"
        return f"{self.name}: the process ended with status {status} at {command!r}{said}"


class Channel:
    """The worker's end: one command in, one answer out."""

    def __init__(self) -> None:
        """Takes over standard input and output; prints go to standard error from here on."""
        self._commands = sys.stdin
        self._answers: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def command(self) -> dict[str, Any] | None:
        """Blocks until the next command; None when the parent is gone."""
        line = self._commands.readline()
        return json.loads(line) if line else None

    def answer(self, value: Any) -> None:
        """Answers the command; `value` is anything that JSON knows."""
        self._send({"value": value})

    def fail(self, error: BaseException) -> None:
        """Answers that the command failed, with the error's class and words."""
        if isinstance(error, OptionError):
            self._send({"usage": str(error)})
        else:
            self._send({"error": f"{type(error).__name__}: {error}"})

    def _send(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


def serve(answers: Mapping[str, Callable[..., Any]]) -> int:
    """Answers commands until the parent is gone, or until one fails, which the parent is told.

    Args:
        answers: What is called for each command, with its arguments. It may grow meanwhile.

    Returns:
        The exit status of the process.
    """
    channel = Channel()
    while (asked := channel.command()) is not None:
        try:
            channel.answer(answers[asked.pop("command")](**asked))
        # Whatever it was, the parent is to hear of it; here it would only be printed.
        except Exception as error:
            channel.fail(error)
            return 1
    return 0

"""Runs a command that may hang: for so long at most, then it is killed.

It promises that neither the command nor a child of it outlives the call, unless the system cannot
end it, which is told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

_LOG_LINES = 60

# A process that waits inside of a driver is only gone when the driver lets go of it.
_GONE_AFTER_S = 30.0


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: Its exit status, negative for the signal that ended it; None where it was killed
            because its time was over.
        seconds: How long it ran.
        printed: What it wrote to standard output.
        log: What it wrote to standard error.
        is_gone: False where it was killed and is there all the same.
    """

    status: int | None
    seconds: float
    printed: str
    log: str
    is_gone: bool = True

    @property
    def last_log_lines(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.strip().splitlines()[-_LOG_LINES:])

    @property
    def last_printed_line(self) -> str:
        """The last line that it printed; "" where it printed nothing."""
        return self.printed.strip().rpartition("\n")[2]

    def described(self, limit_s: float) -> str:
        """How it ended, in words: `ended with status 1`, `was ended by SIGSEGV`.

        Args:
            limit_s: The seconds that it had.
        """
        if self.status is None:
            still = "" if self.is_gone else ", and is there all the same"
            return f"hung: it came to no end within {limit_s:.0f} s and was killed{still}"
        if self.status < 0:
            return f"was ended by {signal.Signals(-self.status).name}"
        return f"ended with status {self.status}"


def run(
    command: Sequence[str], *, environment: Mapping[str, str], folder: pathlib.Path, limit_s: float
) -> Ended:
    """Runs a command to its end, or to that of its time.

    Args:
        command: The program and its arguments.
        environment: All its environment variables.
        folder: Its working directory.
        limit_s: Seconds that it may take; then SIGKILL ends it and its children.

    Returns:
        How it ended and what it said.
    """
    started = time.monotonic()
    # Files and not pipes: a pipe stays open as long as any child of the command.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        is_gone = True
        with _killed_at_the_end(process):
            try:
                status: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                status = None
        if status is None:
            is_gone = _is_gone(process)
        seconds = time.monotonic() - started
        return Ended(status, seconds, _text(printed), _text(log), is_gone)


@contextlib.contextmanager
def _killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends a process and its children, also where the block is interrupted."""
    try:
        yield
    finally:
        # Its group is gone where it and all its children have ended.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _is_gone(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_GONE_AFTER_S)
    except subprocess.TimeoutExpired:
        return False
    return True

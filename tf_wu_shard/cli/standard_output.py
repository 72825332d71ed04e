"""An answer on standard output, whatever that is: a terminal, a pipe that was closed, a full disk.

It promises no traceback. That a reader leaves early is no error: it has what it wanted.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from tf_wu_shard.errors import OptionError


def show(answer: str, encoding: str | None = None) -> None:
    """Writes an answer and a line feed, and has all of it written before it returns.

    Args:
        answer: The answer. Characters that standard output's encoding lacks are escaped as Python
            escapes them.
        encoding: The encoding that the answer itself says that it has; None for that of standard
            output. Standard output keeps it.

    Raises:
        OptionError: It cannot be written, as to a full disk.
    """
    output = sys.stdout
    if output is None:  # The process was started without one.
        return
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        print(answer, file=output, flush=True)
    except BrokenPipeError:
        _let_go(output)
    except OSError as error:
        _let_go(output)
        raise OptionError(f"cannot write the answer: {error.strerror}") from error


def _let_go(output: TextIO) -> None:
    """Keeps the interpreter, when it ends, from failing once more with what was not written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)

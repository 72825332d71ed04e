"""How a script that somebody runs for a user ended, in one line of the script's own words."""

from __future__ import annotations

import os
import traceback


def in_its_words(path: str, error: BaseException, before: str) -> str:
    """One line: the error, and the last line of the script that it passed.

    Args:
        path: The script.
        error: What ended it.
        before: What it did not come to, such as "it traced a train step".
    """
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 1
        more = f" ({_first_line(error.code)})" if isinstance(error.code, str) else ""
        return f"{path} ended with status {status} before {before}{more}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if os.path.realpath(frame.filename) == os.path.realpath(path)
    ]
    if isinstance(error, SyntaxError) and _is_of(error, path):
        lines.append(error.lineno)
    where = f", line {lines[-1]}" if lines else ""
    words = _first_line(error)
    return f"{path}{where} raised {type(error).__name__}" + (f": {words}" if words else "")


def _is_of(error: SyntaxError, path: str) -> bool:
    file = error.filename
    return file is not None and os.path.realpath(file) == os.path.realpath(path)


def text_of(value: object) -> str:
    """What an object of a script says of itself; "" where that fails, as its code may."""
    try:
        return str(value)
    # Whatever a script may raise.
    except Exception:
        return ""


def _first_line(value: object) -> str:
    return (text_of(value).strip().splitlines() or [""])[0]

"""The bytes of a model's files, and messages out of them; one error where that fails."""

from __future__ import annotations

import os
import pathlib
import stat
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tf_wu_shard.errors import ModelFileError

# A message of protocol buffers holds less than 2 GiB.
MAX_BYTES = 2**31 - 1

# Text is read 0.4 MB a second.
MAX_TEXT_BYTES = 64 * 2**20


def read_bytes(path: pathlib.Path, limit: int = MAX_BYTES) -> bytes:
    """All bytes of a file.

    Args:
        path: The file.
        limit: Most bytes that it may have.

    Raises:
        ModelFileError: It is no ordinary file, too large, or cannot be read.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError(f"cannot read {str(path)!r}: it is no ordinary file")
            if status.st_size > limit:
                raise ModelFileError(
                    f"cannot read {str(path)!r}: it has {status.st_size} bytes, more than {limit}"
                )
            return file.read(limit)
    except ModelFileError:
        # It is a ValueError too, and says all already.
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelFileError(f"cannot read {str(path)!r}: {reason}") from error
    except MemoryError as error:
        raise ModelFileError(f"cannot read {str(path)!r}: out of memory") from error


def _open_at_once(path: str, flags: int) -> int:
    # A named pipe without a writer would keep us waiting.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def parse(message: Any, data: bytes, what: str) -> Any:
    """Fills a message from its binary form.

    Args:
        message: An empty message.
        data: The bytes.
        what: What to call them in an error.

    Returns:
        The message.

    Raises:
        ModelFileError: The bytes hold no such message.
    """
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        kind = type(message).DESCRIPTOR.name
        raise ModelFileError(
            f"{what} is no {kind}: truncated, corrupted, or nested too deep"
        ) from error
    except MemoryError as error:
        raise ModelFileError(f"{what} needs more memory than there is") from error
    return message


def parse_text(message: Any, data: bytes, what: str) -> Any:
    """Fills a message from its text form, see `parse`.

    Raises:
        ModelFileError: The bytes hold no such message.
    """
    kind = type(message).DESCRIPTOR.name
    if len(data) > MAX_TEXT_BYTES:
        raise ModelFileError(
            f"{what} has {len(data)} bytes of text, more than {MAX_TEXT_BYTES}: give the"
            " binary form"
        )
    try:
        text_format.Parse(data.decode("utf-8"), message)
    except (text_format.ParseError, ValueError) as error:
        # It shows the place and quotes what stands there: of any length, with any characters.
        place = ":".join(str(error).split(":")[:2]).strip()
        where = f" (at line {place.replace(':', ', column ')})" if _is_place(place) else ""
        raise ModelFileError(f"{what} is no {kind} in text form{where}") from error
    except RecursionError as error:
        raise ModelFileError(f"{what} is nested too deep") from error
    except MemoryError as error:
        raise ModelFileError(f"{what} needs more memory than there is") from error
    return message


def _is_place(text: str) -> bool:
    return text.replace(":", "").isdecimal()

"""The largest resident memory this process has had, as Linux keeps it."""

from __future__ import annotations

import pathlib
import re

from tf_wu_shard.errors import WuShardError

_STATUS = pathlib.Path("/proc/self/status")


class MemoryUnknownError(WuShardError, RuntimeError):
    """This system does not say how much memory a process has held."""


def peak_bytes() -> int:
    """Returns the high-water mark of this process's resident memory, bytes.

    VmHWM and not ru_maxrss, as the latter starts at the size of the process that forked this one.

    Raises:
        MemoryUnknownError: The system has no /proc/self/status with a VmHWM line.
    """
    status = _STATUS.read_text(encoding="utf-8") if _STATUS.exists() else ""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise MemoryUnknownError(f"no VmHWM in {_STATUS}; the benchmark needs Linux")
    return int(found[1]) * 1024

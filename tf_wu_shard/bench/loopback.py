"""Bytes over the loopback interface, whoever sends them, as Linux counts them."""

from __future__ import annotations

import pathlib

_INTERFACES = pathlib.Path("/proc/net/dev")


def received_bytes() -> int | None:
    """Bytes that the interface has received so far; None where the system does not count them."""
    if not _INTERFACES.exists():
        return None
    for line in _INTERFACES.read_text(encoding="utf-8").splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            return int(figures.split()[0])
    return None


def bytes_between(before: int | None, after: int | None) -> int | None:
    """Bytes from one count to a later one; None where the system does not count them."""
    return None if before is None or after is None else after - before

"""Sizes and times as people read them. Decimal units: 1 MB is a million bytes."""

from __future__ import annotations

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def byte_text(count: float) -> str:
    """Returns a number of bytes with three significant digits: `12.8 MB`."""
    for unit in _BYTE_UNITS:
        if count < 999.5 or unit == _BYTE_UNITS[-1]:
            return f"{count:.0f} B" if unit == "B" else f"{_three_digits(count)} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes everything")


def second_text(seconds: float) -> str:
    """Returns a duration with three significant digits: `138 ms`, `1.25 s`."""
    if seconds < 0.9995:
        return f"{_three_digits(seconds * 1000)} ms"
    return f"{_three_digits(seconds)} s"


def _three_digits(number: float) -> str:
    decimals = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{decimals}f}"

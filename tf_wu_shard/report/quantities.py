"""Sizes and times as people read them. Decimal units: 1 MB is a million bytes."""

from __future__ import annotations

from collections.abc import Sequence

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")


def byte_text(count: float) -> str:
    """Returns a number of bytes with three significant digits: `12.8 MB`."""
    for unit in _BYTE_UNITS:
        if count < 999.5 or unit == _BYTE_UNITS[-1]:
            return f"{count:.0f} B" if unit == "B" else f"{_three_digits(count)} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes everything")


def byte_tick(count: float) -> str:
    """Returns a round number of bytes as an axis has it: `10 MB`, not `10.0 MB`."""
    number, _, unit = byte_text(count).partition(" ")
    return f"{float(number):g} {unit}"


def shape_text(shape: Sequence[int]) -> str:
    """Returns a tensor's shape: `1,000 x 64` with a multiplication sign, `scalar`."""
    return " \N{MULTIPLICATION SIGN} ".join(f"{size:,}" for size in shape) or "scalar"


def second_text(seconds: float) -> str:
    """Returns a duration with three significant digits: `138 ms`, `1.25 s`."""
    if seconds < 0.9995:
        return f"{_three_digits(seconds * 1000)} ms"
    return f"{_three_digits(seconds)} s"


def _three_digits(number: float) -> str:
    decimals = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{decimals}f}"

"""What a node says of itself: the functions that it calls, and whether it draws random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def called(node: Any) -> Iterator[tuple[str, list[str]]]:
    """The functions that a node calls, by attribute."""
    for key, value in node.attr.items():
        if value.HasField("func"):
            yield key, [value.func.name]
        elif value.HasField("list") and value.list.func:
            yield key, [function.name for function in value.list.func]


def is_seeded(node: Any) -> bool:
    """Whether a node draws random numbers from a seed of its own."""
    attr = node.attr
    return "seed2" in attr and bool(attr["seed"].i or attr["seed2"].i)

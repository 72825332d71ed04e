"""Dimensions that may be open, and the questions that shape functions ask about values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from tf_wu_shard.graph.op import Op, Value

# The dimensions of a shape, or the elements of a vector of sizes; None stands for an open one.
Dims: TypeAlias = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeOf:
    """Asks for the dimensions of a value."""

    value: Value


@dataclasses.dataclass(frozen=True, slots=True)
class IntegersOf:
    """Asks for the elements of a scalar or a vector of integers, a scalar's as a tuple of one."""

    value: Value


Question: TypeAlias = ShapeOf | IntegersOf

# A generator that asks questions, is sent their answers, and returns its own: None where it is
# open as a whole.
Rule: TypeAlias = Generator[Question, Dims | None, Dims | None]

# From an op, the number of its result, and what looks constants up.
Function: TypeAlias = Callable[[Op, int, Callable[[Value], Any | None]], Rule]


def merged(first: Dims | None, second: Dims | None) -> Dims | None:
    """What two statements about one shape say together; the first holds where they differ."""
    if first is None or second is None:
        return second if first is None else first
    if len(first) != len(second):
        return first
    return tuple(b if a is None else a for a, b in zip(first, second, strict=True))


def broadcast(first: Dims | None, second: Dims | None) -> Dims | None:
    """The shape that NumPy gives what is computed of two operands, element by element."""
    if first is None or second is None:
        return None
    rank = max(len(first), len(second))
    padded = ((1,) * (rank - len(dims)) + dims for dims in (first, second))
    return tuple(map(_broadcast_dims, *padded))


def _broadcast_dims(a: int | None, b: int | None) -> int | None:
    if a == 1:
        return b
    if b == 1:
        return a
    # An open one is 1 or as long as the other: a step that broadcasts otherwise fails.
    return b if a is None else a


def product(dims: Dims | None) -> int | None:
    """How many elements a shape has; None where that is open."""
    if dims is None:
        return None
    if 0 in dims:
        return 0
    return None if None in dims else math.prod(d for d in dims if d is not None)

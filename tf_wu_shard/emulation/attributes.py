"""AttrValues of the few kinds that emulated programs need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt
import tensorflow as tf

_AttrValue = tf.compat.v1.AttrValue


def dtype(number: int) -> Any:
    """An element type, given as a DataType number."""
    return _AttrValue(type=number)


def integer(value: int) -> Any:
    """An integer."""
    return _AttrValue(i=value)


def flag(value: bool) -> Any:
    """A boolean."""
    return _AttrValue(b=value)


def function(name: str) -> Any:
    """A function, by name."""
    attr = _AttrValue()
    attr.func.name = name
    return attr


def functions(names: Iterable[str]) -> Any:
    """A list of functions, by name."""
    attr = _AttrValue()
    for name in names:
        attr.list.func.add().name = name
    return attr


def dtypes(numbers: Iterable[int]) -> Any:
    """A list of element types, given as DataType numbers."""
    attr = _AttrValue()
    attr.list.type.extend(numbers)
    return attr


def tensor(value: npt.ArrayLike) -> Any:
    """A constant's value."""
    attr = _AttrValue()
    attr.tensor.CopyFrom(tf.make_tensor_proto(value))
    return attr


def repeated(value: Any, times: int) -> Any:
    """A list, that many times over."""
    attr = _AttrValue()
    for _ in range(times):
        attr.list.MergeFrom(value.list)
    return attr

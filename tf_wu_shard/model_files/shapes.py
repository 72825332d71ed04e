"""Shapes out of files: what TensorFlow itself would not take is not known."""

from __future__ import annotations

import math
from typing import Any

# TensorShape's own limits (tensor_shape.h).
MAX_RANK = 254
MAX_ELEMENTS = 2**63 - 1


def dims_of(proto: Any) -> tuple[int | None, ...] | None:
    """The dimensions of a TensorShapeProto, None for open ones.

    Returns:
        The dimensions; None where the rank is open, or no tensor can have such a shape.
    """
    if proto.unknown_rank or len(proto.dim) > MAX_RANK:
        return None
    dims = tuple(dim.size if dim.size >= 0 else None for dim in proto.dim)
    return dims if math.prod(size or 0 for size in dims) <= MAX_ELEMENTS else None


def shape_of(proto: Any) -> tuple[int, ...] | None:
    """A TensorShapeProto's shape; None where it is not fully known, or no tensor can have it."""
    dims = dims_of(proto) or ()
    known = tuple(size for size in dims if size is not None)
    return None if dims_of(proto) is None or len(known) < len(dims) else known

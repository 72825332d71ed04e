"""Shapes out of files: what TensorFlow itself would not take is not known."""

from __future__ import annotations

import math
from typing import Any

# TensorShape's own limits (tensor_shape.h).
MAX_RANK = 254
MAX_ELEMENTS = 2**63 - 1


def shape_of(proto: Any) -> tuple[int, ...] | None:
    """A TensorShapeProto's shape; None where it is not fully known, or no tensor can have it."""
    if proto.unknown_rank or len(proto.dim) > MAX_RANK:
        return None
    dims = tuple(dim.size for dim in proto.dim)
    if any(size < 0 for size in dims) or math.prod(dims) > MAX_ELEMENTS:
        return None
    return dims

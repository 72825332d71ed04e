"""What constants of a graph hold. Reads TensorProtos by duck typing, with no TensorFlow."""

from __future__ import annotations

import math
import struct
from typing import Any


def integers(tensor: Any | None) -> tuple[int, ...] | None:
    """The elements of a TensorProto of type int32 or int64, or None of what is not known.

    Args:
        tensor: The proto, as `GraphView.constant` returns it.
    """
    if tensor is None:
        return None
    count = math.prod(d.size for d in tensor.tensor_shape.dim)
    if tensor.tensor_content:
        width = len(tensor.tensor_content) // count
        return struct.unpack(f"<{count}{'q' if width == 8 else 'i'}", tensor.tensor_content)
    found = [int(n) for n in (tensor.int_val or tensor.int64_val)] or [0] * bool(count)
    # The last element that is written stands for all that follow it.
    return tuple(found + found[-1:] * (count - len(found)))[:count]

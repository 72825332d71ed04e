"""What constants of a graph hold. Reads TensorProtos by duck typing, with no TensorFlow."""

from __future__ import annotations

import math
import struct
from typing import Any

from tf_wu_shard.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64

# How `struct` reads an element of a type.
_FORMATS = {FLOAT32: "<f", FLOAT64: "<d", FLOAT16: "<e"}

# More than there are replicas, axes or parts of anything.
_MOST_ELEMENTS = 1 << 20


def integers(tensor: Any | None) -> tuple[int, ...] | None:
    """The elements of a TensorProto of type int32 or int64, or None of what is not known.

    Args:
        tensor: The proto, as `GraphView.constant` returns it.
    """
    if tensor is None:
        return None
    count = math.prod(d.size for d in tensor.tensor_shape.dim)
    # A file may say anything; what is asked for are axes, groups and numbers of rows.
    if any(d.size < 0 for d in tensor.tensor_shape.dim) or count > _MOST_ELEMENTS:
        return None
    if tensor.tensor_content:
        width = len(tensor.tensor_content) // count if count else 0
        if width not in (4, 8) or width * count != len(tensor.tensor_content):
            return () if count == 0 else None
        return struct.unpack(f"<{count}{'q' if width == 8 else 'i'}", tensor.tensor_content)
    found = [int(n) for n in (tensor.int_val or tensor.int64_val)] or [0] * bool(count)
    # The last element that is written stands for all that follow it.
    return tuple(found + found[-1:] * (count - len(found)))[:count]


def floating_scalar(tensor: Any | None) -> float | None:
    """The one element of a TensorProto of a floating type, or None of anything else.

    Args:
        tensor: The proto, as `GraphView.constant` returns it.
    """
    if tensor is None or math.prod(d.size for d in tensor.tensor_shape.dim) != 1:
        return None
    content, dtype = tensor.tensor_content, tensor.dtype
    if dtype in (FLOAT16, BFLOAT16) and not content:
        content = struct.pack("<H", (*tensor.half_val[:1], 0)[0] & 0xFFFF)
    if dtype == BFLOAT16:
        # The upper half of a float32.
        content, dtype = b"\0\0" + content, FLOAT32
    if dtype not in _FORMATS:
        return None
    if content:
        if len(content) != struct.calcsize(_FORMATS[dtype]):
            return None
        return float(struct.unpack(_FORMATS[dtype], content)[0])
    held = tensor.float_val if dtype == FLOAT32 else tensor.double_val
    return float(held[0]) if held else 0.0

"""The StableHLO module of one all-gather, which TensorFlow has no op of its own for.

Written into an XlaCallModule and read back from one, so that writer and reader cannot drift apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

# The XlaCallModule version that takes a module as text without tokens or shape arguments.
VERSION = 10

# DataType number -> the name of the element type in StableHLO.
_ELEMENTS = {1: "f32", 2: "f64", 14: "bf16", 19: "f16", 3: "i32", 9: "i64"}

_MODULE = """\
module @wu_shard_all_gather {{
  func.func @main(%arg0: tensor<{own}>) -> tensor<{whole}> {{
    %0 = "stablehlo.all_gather"(%arg0) {{all_gather_dim = 0 : i64, \
replica_groups = dense<{groups}> : tensor<{count}x{size}xi64>}} : \
(tensor<{own}>) -> tensor<{whole}>
    return %0 : tensor<{whole}>
  }}
}}
"""

_GROUPS = re.compile(r'"stablehlo\.all_gather".*replica_groups = dense<(\[\[.*?\]\])>')


class AllGather(NamedTuple):
    """An all-gather along the first dimension.

    Attributes:
        groups: Replicas whose operands are put together, in order.
    """

    groups: tuple[tuple[int, ...], ...]


def element_type(dtype: int) -> str | None:
    """What StableHLO calls an element type, given as a DataType number; None if it is unknown."""
    return _ELEMENTS.get(dtype)


def write(shape: Sequence[int], dtype: int, groups: Sequence[Sequence[int]]) -> str:
    """The module of an all-gather along the first dimension.

    Args:
        shape: The operand's shape.
        dtype: Its element type, as a DataType number.
        groups: Replicas whose operands are put together, in order; of one size.

    Returns:
        The module as text.
    """
    size = len(groups[0])
    whole = (shape[0] * size, *shape[1:])
    element = _ELEMENTS[dtype]
    return _MODULE.format(
        own="x".join([*map(str, shape), element]),
        whole="x".join([*map(str, whole), element]),
        groups=json.dumps([list(group) for group in groups]),
        count=len(groups),
        size=size,
    )


def read(module: str) -> AllGather | None:
    """Reads a module that `write` wrote; None for any other."""
    if not module.startswith("module @wu_shard_all_gather "):
        return None
    found = _GROUPS.search(module)
    if found is None:
        return None
    return AllGather(tuple(tuple(group) for group in json.loads(found.group(1))))

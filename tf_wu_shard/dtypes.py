"""Sizes of TensorFlow's element types, by the number that a GraphDef gives them.

The numbers are those of the DataType enum in TensorFlow's types.proto, part of its stable file
format; kept here so that planning needs no TensorFlow.
"""

from __future__ import annotations

from tf_wu_shard.errors import WuShardError

FLOAT32 = 1
FLOAT64 = 2
INT32 = 3
INT16 = 5
INT64 = 9
BOOL = 10
BFLOAT16 = 14
FLOAT16 = 19
RESOURCE = 20
VARIANT = 21

# What rows of a table are numbered with.
INTEGERS = frozenset({INT32, INT64})

_NAMES_AND_BYTES: dict[int, tuple[str, int]] = {
    1: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    8: ("complex64", 8),
    9: ("int64", 8),
    10: ("bool", 1),
    14: ("bfloat16", 2),
    17: ("uint16", 2),
    18: ("complex128", 16),
    19: ("float16", 2),
    22: ("uint32", 4),
    23: ("uint64", 8),
}


def item_bytes(dtype: int) -> int:
    """Bytes of one element of `dtype`.

    Raises:
        WuShardError: If its elements have no fixed size, as strings and resources.
    """
    return _look_up(dtype)[1]


def dtype_name(dtype: int) -> str:
    """The name of `dtype`, such as "float32".

    Raises:
        WuShardError: If its elements have no fixed size, as strings and resources.
    """
    return _look_up(dtype)[0]


def bytes_of_named(name: str) -> int:
    """Bytes of one element of a type, given its name, such as "float32".

    Raises:
        WuShardError: If no type of fixed size has this name.
    """
    found = [size for known, size in _NAMES_AND_BYTES.values() if known == name]
    if not found:
        raise WuShardError(f"no element type of a fixed size is called {name!r}")
    return found[0]


def _look_up(dtype: int) -> tuple[str, int]:
    if dtype not in _NAMES_AND_BYTES:
        raise WuShardError(f"elements of DataType {dtype} have no fixed size; they are not sharded")
    return _NAMES_AND_BYTES[dtype]

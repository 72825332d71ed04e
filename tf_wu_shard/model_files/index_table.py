"""The index of a checkpoint: which tensors it holds, of what shape and type; values are not read.

`variables.index` is a sorted table as LevelDB writes it (leveldb/doc/table_format.md): blocks of
entries whose keys leave out what they share with the key before, each block followed by its
compression and a masked CRC-32C, and a footer that says where the index block lies. The entries are
BundleEntryProtos; that of the empty key is a header. TensorFlow's own reader is not asked: this one
answers with an error whatever the bytes are, and takes memory in proportion to them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.model_files.contents import parse
from tf_wu_shard.model_files.shapes import shape_of
from tf_wu_shard.tensorflow_private import model_protos

_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_CRC_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
_CRC_MASK = 0xA282EAD8

# The blocks of one table hold each entry once; blocks that overlap would hold them again and again.
_MOST_BLOCK_BYTES = 2

# Names that share their beginnings take little room in the file; those of real models are no more
# than a few times as long as that. So many bytes of names for each byte of the file are read.
_MOST_KEY_BYTES = 64


class IndexEntry(NamedTuple):
    """What an index says of one tensor.

    Attributes:
        shape: Its shape, or None where no tensor can have it.
        dtype: The DataType enum's number.
    """

    shape: tuple[int, ...] | None
    dtype: int


def index_entries(data: bytes) -> dict[str, IndexEntry]:
    """All tensors that an index names.

    Args:
        data: The contents of the file.

    Returns:
        What it says of each, by its name.

    Raises:
        ModelFileError: The bytes are no such table, or were changed since they were written.
    """
    found: dict[str, IndexEntry] = {}
    for key, value in _table(data):
        if not key:
            continue
        entry = parse(model_protos.bundle_entry(), value, "an entry of the variables' index")
        try:
            name = key.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _damaged("a name is no text") from error
        found[name] = IndexEntry(shape_of(entry.shape), entry.dtype)
    return found


def _damaged(how: str) -> ModelFileError:
    return ModelFileError(f"the variables' index is damaged: {how}")


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(data) < _FOOTER_BYTES:
        raise _damaged("it is shorter than its footer")
    footer = data[-_FOOTER_BYTES:]
    if struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise _damaged("it does not end as such a table does")
    _, at = _handle(footer, 0)
    place, _ = _handle(footer, at)
    allowed, names = _MOST_BLOCK_BYTES * len(data), _MOST_KEY_BYTES * len(data)
    for _, handle in _block(data, *place):
        offset, size = _handle(handle, 0)[0]
        allowed -= size
        if allowed < 0:
            raise _damaged("its blocks overlap")
        for key, value in _block(data, offset, size):
            names -= len(key)
            if names < 0:
                raise _damaged("its names are longer than any model's")
            yield key, value


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Where a block lies and how long it is, and the place behind these two numbers."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _damaged("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _damaged("a number is too long")


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a block."""
    end = offset + size
    if size < 4 or end + _TRAILER_BYTES > len(data):
        raise _damaged("a block lies outside of it")
    compression, checksum = struct.unpack_from("<BI", data, end)
    if compression != 0:
        raise ModelFileError("the variables' index is compressed, which TensorFlow never does")
    if _masked_crc(data[offset : end + 1]) != checksum:
        raise _damaged("a checksum is wrong")
    restarts = struct.unpack_from("<I", data, end - 4)[0]
    stop = end - 4 - 4 * restarts
    if stop < offset:
        raise _damaged("a block is shorter than its list of restarts")
    key, at = b"", offset
    while at < stop:
        shared, at = _varint(data, at)
        own, at = _varint(data, at)
        length, at = _varint(data, at)
        if shared > len(key) or at + own + length > stop:
            raise _damaged("an entry lies outside of its block")
        key = key[:shared] + data[at : at + own]
        yield key, data[at + own : at + own + length]
        at += own + length


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_CRC_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    """The CRC-32C of bytes, masked as LevelDB stores it (util/crc32c.h)."""
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _CRC_MASK) & 0xFFFFFFFF

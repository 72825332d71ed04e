"""The sizes of element types are TensorFlow's."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.dtypes import bytes_of_named, dtype_name, item_bytes
from tf_wu_shard.errors import WuShardError

FIXED = [
    *(tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.complex64, tf.complex128, tf.bool),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
]


@pytest.mark.parametrize("dtype", FIXED, ids=lambda d: d.name)
def test_name_and_size_are_those_of_tensorflow(dtype: tf.DType) -> None:
    assert dtype_name(dtype.as_datatype_enum) == dtype.name
    assert item_bytes(dtype.as_datatype_enum) == bytes_of_named(dtype.name) == dtype.size


@pytest.mark.parametrize("dtype", [tf.string, tf.resource, tf.variant], ids=lambda d: d.name)
def test_elements_of_no_fixed_size_are_an_error(dtype: tf.DType) -> None:
    for ask in (dtype_name, item_bytes):
        with pytest.raises(WuShardError, match="no fixed size"):
            ask(dtype.as_datatype_enum)


def test_the_bytes_of_an_unknown_name_are_an_error() -> None:
    with pytest.raises(WuShardError, match="no element type of a fixed size is called 'string'"):
        bytes_of_named("string")

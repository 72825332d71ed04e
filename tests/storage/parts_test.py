from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import memory_of, values_of
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.storage import parts
from tf_wu_shard.storage.parts import cut, cut_all, join

_DTYPES = [
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128, tf.bool),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (7, 5), (0, 4), (2, 3, 4), (64, 33)])
@pytest.mark.parametrize("num_shards", [1, 2, 4, 8])
def test_joining_the_cuts_gives_the_value(shape: tuple[int, ...], num_shards: int) -> None:
    layout = flat_layout(shape, num_shards, 4)
    value = tf.constant(values_of(shape))
    shards = [cut(value, layout, index) for index in range(num_shards)]
    for index, shard in enumerate(shards):
        assert tuple(shard.shape) == layout.shard_shape(index)
    joined = join(shards, layout)
    assert tuple(joined.shape) == shape
    np.testing.assert_array_equal(joined, value)


@pytest.mark.parametrize("dtype", _DTYPES, ids=lambda dtype: str(dtype.name))
def test_every_dtype_survives_cutting_and_joining(dtype: tf.DType) -> None:
    layout = flat_layout((5, 3), 4, dtype.size)
    value = tf.constant(values_of((5, 3), dtype))
    joined = join([cut(value, layout, index) for index in range(4)], layout)
    assert joined.dtype == dtype
    np.testing.assert_array_equal(joined.numpy(), value.numpy())


def test_shards_are_runs_and_the_last_ones_are_short_or_empty() -> None:
    layout = Layout((5,), 4, 2)
    value = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0])
    cuts = [cut(value, layout, index).numpy().tolist() for index in range(4)]
    assert cuts == [[1.0, 2.0], [3.0, 4.0], [5.0], []]


def test_a_shard_shares_no_memory_with_the_value() -> None:
    value = tf.constant(values_of((64,)))
    whole = memory_of(value)
    layout = flat_layout((64,), 2, 4)
    for index in range(2):
        assert not np.shares_memory(memory_of(cut(value, layout, index)), whole)


def test_threads_cut_and_join_one_after_the_other() -> None:
    layout = flat_layout((6,), 2, 4)
    whole = tf.range(6.0)
    joined: list[tf.Tensor] = []
    thread = threading.Thread(target=lambda: joined.append(join(cut_all(whole, layout), layout)))
    with parts._alone():
        thread.start()
        thread.join(0.1)
        assert thread.is_alive() and not joined
    thread.join()
    np.testing.assert_array_equal(joined[0], whole)

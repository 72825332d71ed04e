"""A table is cut at whole rows, at 64-byte boundaries, and survives storage and plan."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.layout import RowLayout, row_layout
from tf_wu_shard.storage.parts import cut, cut_all, join


@pytest.mark.parametrize("shape", [(50, 16), (7, 3), (1, 4), (33, 1), (10, 2, 5), (9,)])
@pytest.mark.parametrize("num_shards", [1, 2, 5, 8])
@pytest.mark.parametrize("item_bytes", [2, 4, 8])
def test_the_rows_of_all_shards_are_the_rows_of_the_table(
    shape: tuple[int, ...], num_shards: int, item_bytes: int
) -> None:
    layout = row_layout(shape, num_shards, item_bytes)
    ranges = [layout.rows(shard) for shard in range(num_shards)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == shape[0]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    for shard, (start, stop) in enumerate(ranges):
        assert layout.shard_shape(shard) == (stop - start, *shape[1:])
        begin, end = layout.bounds(shard)
        if end < layout.size:
            assert (begin * item_bytes) % 64 == (end * item_bytes) % 64 == 0


def test_a_boundary_inside_a_row_is_no_table_layout() -> None:
    with pytest.raises(ValueError, match="whole rows"):
        RowLayout((4, 3), 2, 7)


@pytest.mark.parametrize("num_shards", [1, 2, 5])
def test_the_shards_of_a_table_are_tables_and_join_to_it(num_shards: int) -> None:
    value = tf.constant(np.arange(150, dtype=np.float32).reshape(50, 3))
    layout = row_layout((50, 3), num_shards, 4)
    shards = cut_all(value, layout)
    for shard, own in enumerate(shards):
        start, stop = layout.rows(shard)
        np.testing.assert_array_equal(own, value[start:stop])
        np.testing.assert_array_equal(cut(value, layout, shard), own)
    np.testing.assert_array_equal(join(shards, layout), value)

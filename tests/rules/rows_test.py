"""What is looked up in shards of a table is what is looked up in the table, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.layout import row_layout
from tf_wu_shard.rules.sparse import LOOK_UP, READ_ROWS


@pytest.mark.parametrize("op_type", [LOOK_UP, READ_ROWS])
@pytest.mark.parametrize("seed", range(4))
def test_each_shard_looks_up_what_its_entries_name(op_type: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    shape, shards = (int(random.integers(1, 9)), 3), int(random.integers(2, 6))
    table = random.standard_normal(shape, dtype=np.float32)
    rows = random.integers(0, shape[0], 12)
    joined = np.full((len(rows), 3), np.nan, np.float32)
    layout = row_layout(shape, shards, table.itemsize)
    for shard in range(shards):
        start, stop = layout.rows(shard)
        (own,) = np.nonzero((rows >= start) & (rows < stop))
        joined[own] = _looked_up(op_type, table[start:stop], rows[own] - start)
    assert joined.tobytes() == _looked_up(op_type, table, rows).tobytes()


def _looked_up(op_type: str, table: np.ndarray, rows: np.ndarray) -> np.ndarray:
    if op_type == LOOK_UP:
        found = tf.raw_ops.GatherV2(params=table, indices=rows, axis=0)
    else:
        variable = tf.Variable(table)
        found = tf.raw_ops.ResourceGather(
            resource=variable.handle, indices=rows, dtype=tf.float32, validate_indices=True
        )
    result: np.ndarray = found.numpy()
    return result

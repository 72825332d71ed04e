"""Sparse gradients that are late: lists of rows, of which none is lost and none comes twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.partial_sums.late_table import BATCH, MOMENTUM, RATE, ROWS, STEPS, WIDTH, Table, given
from tf_wu_shard import ShardingOptions, WuShardError
from tf_wu_shard.partial_sums.options import FLAG


def by_numpy(
    rows: np.ndarray, values: np.ndarray, late: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both tables after training by momentum; powers of two, so that nothing is rounded."""
    shapes = (ROWS, WIDTH), (BATCH, WIDTH)
    weights = [np.zeros(shape) for shape in shapes]
    momenta = [np.zeros(shape) for shape in shapes]
    waiting = [[np.zeros(shape) for shape in shapes] for _ in range(late.shape[1])]
    for step in range(STEPS):
        sums = [np.zeros(shape) for shape in shapes]
        for replica, code in enumerate(late[step]):
            own = waiting[replica]
            if not code & 2:
                np.add.at(own[0], rows[step, replica], values[step, replica])
                own[1] += values[step, replica]
            if not code & 1:
                sums = [total + one for total, one in zip(sums, own, strict=True)]
                waiting[replica] = [np.zeros(shape) for shape in shapes]
        for weight, momentum, total in zip(weights, momenta, sums, strict=True):
            momentum *= MOMENTUM
            momentum -= RATE * total
            weight += momentum
    return weights[0], weights[1]


@pytest.mark.parametrize("sharded", [False, True])
def test_random_lateness_is_as_in_numpy(strategy: Any, sharded: bool) -> None:
    sharding = ShardingOptions(min_elements=1, on_refusal="raise") if sharded else False
    tf.config.optimizer.set_experimental_options({FLAG: True, "weight_update_sharding": sharding})
    trained, (rows, values, late) = Table(strategy), given(2)
    trained.fit(rows, values, late)
    table, positions = by_numpy(rows, values, late)
    np.testing.assert_array_equal(trained.table.numpy(), table)
    np.testing.assert_array_equal(trained.positions.numpy(), positions)
    (report,) = tf_wu_shard.reports()
    assert "2 gradients may be late" in report.changes[FLAG]
    assert bool(report.variables) == sharded


def test_as_many_rows_in_every_step_cannot_be_left_out(strategy_of: Any) -> None:
    tf.config.optimizer.set_experimental_options({FLAG: True})
    trained = Table(strategy_of(2), open_size=False)
    with pytest.raises(WuShardError, match=r"gradient of .*table.* has as many rows in every step"):
        trained.fit(*given(2))

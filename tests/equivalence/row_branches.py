"""Branches around all replicas that look rows of a table up and write them, beside a dense update.

Every second step does not take the branch, and the last steps name other rows, and fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tests.equivalence.nested_scenarios import Left, Scenario

# What is done to a table and its slot, given a gradient's values and rows, and a factor.
Update = Callable[[Any, Any, tf.Tensor, tf.Tensor, float], None]

_ROWS = ([1, 3, 3, 7], [1, 3, 3, 7], [8, 1, 8, 8], [2, 2, 9])


def _once(table: Any, slot: Any, values: tf.Tensor, rows: tf.Tensor, factor: float) -> None:
    slot.scatter_add(tf.IndexedSlices(values * values * factor, rows))
    less = factor * values / (1.0 + tf.sqrt(tf.gather(slot, rows)))
    table.scatter_sub(tf.IndexedSlices(less, rows))


def _decayed(table: Any, slot: Any, values: tf.Tensor, rows: tf.Tensor, factor: float) -> None:
    slot.assign(slot * 0.9)
    _once(table, slot, values, rows, factor)
    slot.assign(slot * 0.5)


def _twice(table: Any, slot: Any, values: tf.Tensor, rows: tf.Tensor, factor: float) -> None:
    _once(table, slot, values, rows, factor)
    table.scatter_add(tf.IndexedSlices(values * 0.01, rows))


def _centred(table: Any, slot: Any, values: tf.Tensor, rows: tf.Tensor, factor: float) -> None:
    """Of open shape, so that nothing proves that the branches leave tables of one shape."""
    total = tf.math.unsorted_segment_sum(values, rows, 40) * factor
    table.assign_sub(total - tf.expand_dims(tf.reduce_mean(total, 1), 1))


class _Net:
    """A table that is looked up and a matrix, with a slot each."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        with strategy.scope():
            self.table = tf.Variable(tf.sin(tf.reshape(tf.range(320.0), (40, 8))))
            self.weight = tf.Variable(tf.cos(tf.reshape(tf.range(512.0), (64, 8))))
            self.slots = [
                tf.Variable(tf.zeros_like(of), trainable=False) for of in (self.table, self.weight)
            ]

    def summed(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """The sum of the dense gradient, and the values and rows of the sparse one."""
        with tf.GradientTape() as tape:
            looked_up = tf.gather(self.table, rows)
            loss = tf.reduce_sum(tf.sin(tf.matmul(looked_up, self.weight, transpose_b=True)))
        replica = tf.distribute.get_replica_context()
        sparse, dense = tape.gradient(loss, [self.table, self.weight])
        sparse = replica.all_reduce("SUM", sparse)
        return [replica.all_reduce("SUM", dense), sparse.values, sparse.indices]


def _in_a_branch(update: Update, otherwise: Update | None = None, dense: bool = False) -> Scenario:
    """Steps that update rows in a branch.

    Args:
        update: What the branch does to the table that is taken if the condition holds.
        otherwise: What the other one does; None for nothing.
        dense: Whether the other one updates the matrix at least.
    """

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = _Net(strategy)

        def of_matrix(weight: Any, slot: Any, gradient: tf.Tensor, factor: float) -> None:
            slot.assign(slot * 0.9 + gradient * factor)
            weight.assign_sub(slot * 0.1)

        def apply(taken: tf.Tensor, dense_sum: Any, values: Any, rows: Any) -> None:
            def branch(of_rows: Update | None, factor: float) -> int:
                extended, (of_table, of_weight) = strategy.extended, net.slots
                if of_rows is not None or dense:
                    of_dense = (of_weight, dense_sum, factor)
                    extended.update(net.weight, of_matrix, args=of_dense, group=False)
                if of_rows is not None:
                    of_sparse = (of_table, values, rows, factor)
                    extended.update(net.table, of_rows, args=of_sparse, group=False)
                return 0

            tf.cond(taken, lambda: branch(update, 1.0), lambda: branch(otherwise, 2.0))

        @tf.function
        def step(rows: Any, taken: tf.Tensor) -> None:
            def on_replica(own: tf.Tensor) -> None:
                merge = tf.distribute.get_replica_context().merge_call
                merge(lambda _, *sums: apply(taken, *sums), args=tuple(net.summed(own)))

            strategy.run(on_replica, (rows,))

        for number, rows in enumerate(_ROWS * 2):

            def own(replica: Any, rows: list[int] = rows) -> tf.Tensor:
                return tf.constant(rows) + replica.replica_id_in_sync_group

            given = strategy.experimental_distribute_values_from_function(own)
            step(given, tf.constant(number % 2 == 0))
        return Left([net.table, net.weight, *net.slots], [])

    return scenario


SCENARIOS: dict[str, Scenario] = {
    "rows_in_a_branch": _in_a_branch(_once),
    "rows_in_a_branch_that_decays": _in_a_branch(_decayed),
    "rows_twice_in_a_branch": _in_a_branch(_twice),
    "rows_in_one_branch_of_two": _in_a_branch(_once, dense=True),
    "rows_in_both_branches": _in_a_branch(_once, _decayed),
    "rows_centred_in_a_branch": _in_a_branch(_centred),
}

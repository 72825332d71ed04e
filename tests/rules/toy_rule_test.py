"""A rule of a test's own: one entry in the table and its samples, and an optimizer is in shards.

Nothing in tf_wu_shard knows `Cumsum`. Along an axis inside of the rows of a table, or of entries,
each shard can do it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.embedding import train_embedding
from tests.equivalence.in_process import Both, both, in_shards
from tf_wu_shard.placement import Cut, RowPlacement, What
from tf_wu_shard.rules import registry
from tf_wu_shard.rules.operation import Operation
from tf_wu_shard.rules.registry import Operands, Outcome, Rule
from tools.rule_proof import row_samples
from tools.rule_proof.proofs import PROVED, WRONG, prove
from tools.rule_proof.row_samples import RowCall
from tools.rule_proof.samples import Call, values
from tools.rule_proof.tables import ALL, Table

ROWS, WIDTH = 50, 16


class Cumulative(tf.compat.v1.train.MomentumOptimizer):
    """Moves each element by the sum of those before it in its row, of gradients summed likewise."""

    def __init__(self) -> None:
        super().__init__(0.1, 0.9, name="Cumulative")

    def _resource_apply_sparse(self, grad: tf.Tensor, var: Any, indices: tf.Tensor) -> Any:
        slot, ops = self.get_slot(var, "momentum"), tf.raw_ops
        updates = tf.cumsum(grad, axis=1)
        put = ops.ResourceScatterAdd(resource=slot.handle, indices=indices, updates=updates)
        with tf.control_dependencies([put]):
            kept = ops.ReadVariableOp(resource=slot.handle, dtype=grad.dtype)
        kept.set_shape(var.shape)
        step = tf.cumsum(kept, axis=-1, reverse=True) * 0.01
        return ops.AssignSubVariableOp(resource=var.handle, value=step)


def each_row(op: Operation, operands: Operands) -> Outcome:
    """The rule: the result lies as the operand does, unless rows or entries are added up."""
    first, axis = operands[0], op.constants.get(1)
    if not isinstance(first, RowPlacement) or first.what not in (What.TABLE, What.ENTRIES):
        return registry.no_rule_on_rows(op)
    rank = len(first.shape) + (first.what is What.ENTRIES)
    if axis is None or axis[0] % rank == 0:
        return registry.no_rule_on_rows(op)
    return (first,)


def along_any_axis(op: Operation, operands: Operands) -> Outcome:
    """A false rule."""
    first = operands[0]
    return (first,) if first is not None else registry.no_rule_on_rows(op)


def cumulated(op_type: str, random: np.random.Generator, table: Table) -> Iterator[RowCall]:
    """Samples: tables and entries, along every axis."""
    of_one = (len(table.entries[ALL]), *table.shape[1:])
    lying = (
        (table.shape, row_samples.of_table(table.shape)),
        (of_one, row_samples.of_entries(table)),
    )
    for shape, placement in lying:
        for axis in range(-1, len(shape)):
            operands = (values(random, shape), np.array(axis, np.int32))
            attributes = (("exclusive", bool(axis % 2)), ("reverse", bool(random.integers(2))))
            call = Call(op_type, operands, (True, False), attributes)
            yield RowCall(call, table, (placement, None))


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], None]:
    """Registers a rule of Cumsum, with its samples, for a test."""
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    monkeypatch.setitem(row_samples.SPECIAL, "Cumsum", cumulated)
    return lambda rule: registry.register(rule, "Cumsum")


def trained(strategy: tf.distribute.MirroredStrategy) -> tuple[Both, bool]:
    """Both trainings, and whether the table's slot lived in shards."""
    runs = both(lambda: train_embedding(strategy, Cumulative, rows=ROWS, width=WIDTH))
    (slot,) = (v for v in runs.variables[1:] if v.shape == (ROWS, WIDTH))
    assert np.any(slot.numpy())
    return runs, in_shards(slot)


def test_without_a_rule_the_update_is_left_alone_and_says_why(
    strategy_of: Callable[[int], tf.distribute.MirroredStrategy],
) -> None:
    runs, sharded = trained(strategy_of(2))
    assert runs.apart == [] and not sharded
    assert any("no rule for Cumsum" in str(report) for report in runs.reports)


def test_one_entry_in_the_table_puts_the_update_in_shards(
    strategy_of: Callable[[int], tf.distribute.MirroredStrategy],
    register: Callable[[Rule], None],
) -> None:
    register(Rule(rows=each_row, constants=(1,)))
    runs, sharded = trained(strategy_of(2))
    assert runs.apart == [] and sharded
    assert not any("Cumsum" in str(report) for report in runs.reports)


def test_the_rule_is_proved_by_its_samples(register: Callable[[Rule], None]) -> None:
    register(Rule(rows=each_row, constants=(1,)))
    verdict = prove("Cumsum", Cut.ROWS)
    assert verdict.outcome == PROVED and verdict.count > 10, verdict.detail


def test_a_rule_that_adds_up_rows_is_not(register: Callable[[Rule], None]) -> None:
    register(Rule(rows=along_any_axis, constants=(1,)))
    assert prove("Cumsum", Cut.ROWS).outcome == WRONG

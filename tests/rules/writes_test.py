"""The table of writes reads operands as TensorFlow does, and says what each write does."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.rules.variables import READ, WHOLE_READS
from tf_wu_shard.rules.writes import (
    WRITES,
    WRITES_OF_PARTS,
    WRITING,
    is_fused_update,
    is_plain_write,
    num_written,
    writes_rows,
)
from tf_wu_shard.tensorflow_private import function_graph

PLAIN = [op_type for op_type, write in WRITES.items() if write.is_plain]
SCATTERS = [name for name, write in WRITES.items() if writes_rows(name) and not write.is_fused]


@pytest.mark.parametrize("op_type", WRITES)
def test_operands_are_where_the_definition_has_them(op_type: str) -> None:
    definition = function_graph.op_def(op_type)
    assert definition is not None
    write, arguments = WRITES[op_type], definition.input_arg
    are_handles = [argument.type == tf.resource.as_datatype_enum for argument in arguments]
    count = write.num_handles
    assert are_handles == [True] * count + [False] * (len(arguments) - count)
    assert arguments[write.operand].name in ("value", "updates", "grad", "delta")
    assert write.rows is None or arguments[write.rows].name == "indices"
    assert num_written(op_type) == count


def test_every_dense_fused_update_of_tensorflow_is_in_the_table() -> None:
    fused = {name for name in WRITES if is_fused_update(name)}
    assert fused == {name for name in dir(tf.raw_ops) if name.startswith("ResourceApply")}


def test_every_op_that_writes_a_variable_is_in_one_of_the_tables() -> None:
    """Those of TensorFlow are named by their first word; accumulators and summaries have others."""
    first = ("ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStrided", "Assign")
    names = {name for name in dir(tf.raw_ops) if name.startswith((*first, "ResourceCountUpTo"))}
    taking = {
        name
        for name in names
        if (definition := function_graph.op_def(name)) is not None
        and definition.input_arg[0].type == tf.resource.as_datatype_enum
    }
    assert taking == WRITING
    assert WRITES.keys().isdisjoint(WRITES_OF_PARTS)


def test_every_write_is_of_one_kind() -> None:
    for op_type, write in WRITES.items():
        kinds = (is_plain_write(op_type), is_fused_update(op_type), writes_rows(op_type))
        assert sum(kinds) == 1, op_type
        assert writes_rows(op_type) == (write.rows is not None)


@pytest.mark.parametrize("op_type", [READ, *sorted(WHOLE_READS), "Mul"])
def test_what_writes_nothing_is_not_in_it(op_type: str) -> None:
    assert num_written(op_type) == 0 and op_type not in WRITES
    assert not any(kind(op_type) for kind in (is_plain_write, is_fused_update, writes_rows))


@pytest.mark.parametrize("op_type", PLAIN)
def test_a_plain_write_is_the_arithmetic_it_stands_for(op_type: str) -> None:
    old = np.array([1.5, -2.0, 3.0], np.float32)
    operand = np.array([0.25, 4.0, -1.0], np.float32)
    variable = tf.Variable(old)
    getattr(tf.raw_ops, op_type)(resource=variable.handle, value=operand)
    arithmetic = WRITES[op_type].on_values
    expected = operand if arithmetic is None else getattr(tf.raw_ops, arithmetic)(x=old, y=operand)
    np.testing.assert_array_equal(variable.numpy(), expected)


@pytest.mark.parametrize("op_type", SCATTERS)
def test_a_scatter_does_to_a_variable_what_its_partner_does_to_a_value(op_type: str) -> None:
    table = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows, values = tf.constant([2, 0, 2]), tf.constant([[1.0, 0.5], [0.25, 2.0], [4.0, 8.0]])
    variable = tf.Variable(table)
    getattr(tf.raw_ops, op_type)(resource=variable.handle, indices=rows, updates=values)
    partner = getattr(tf.raw_ops, str(WRITES[op_type].on_values))
    changed = partner(tensor=table, indices=rows[:, None], updates=values)
    assert variable.numpy().tobytes() == changed.numpy().tobytes()

"""Every op on rows of a table is described as TensorFlow defines it."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.rules.sparse import SCATTERS, SPARSE_FUSED
from tf_wu_shard.tensorflow_private import function_graph


@pytest.mark.parametrize("op_type", sorted(SPARSE_FUSED))
def test_a_sparse_fused_updates_operands_are_where_its_definition_has_them(op_type: str) -> None:
    definition = function_graph.op_def(op_type)
    assert definition is not None
    arguments = [(a.name, a.type == tf.resource.as_datatype_enum) for a in definition.input_arg]
    fused = SPARSE_FUSED[op_type]
    assert [is_handle for _, is_handle in arguments] == [
        i < fused.num_handles for i in range(len(arguments))
    ]
    assert arguments[fused.gradient][0] == "grad"
    assert arguments[fused.rows][0] == "indices"


@pytest.mark.parametrize("op_type", sorted(SCATTERS))
def test_a_scatter_does_to_a_variable_what_its_partner_does_to_a_value(op_type: str) -> None:
    table = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows, values = tf.constant([2, 0, 2]), tf.constant([[1.0, 0.5], [0.25, 2.0], [4.0, 8.0]])
    variable = tf.Variable(table)
    getattr(tf.raw_ops, op_type)(resource=variable.handle, indices=rows, updates=values)
    partner = getattr(tf.raw_ops, SCATTERS[op_type])
    changed = partner(tensor=table, indices=rows[:, None], updates=values)
    assert variable.numpy().tobytes() == changed.numpy().tobytes()

"""The table of fused updates reads their operands as TensorFlow does."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.tensorflow_private import function_graph


@pytest.mark.parametrize("op_type", FUSED)
def test_handles_come_first_and_the_gradient_where_the_table_says(op_type: str) -> None:
    definition = function_graph.op_def(op_type)
    assert definition is not None
    handles = [a.type == tf.resource.as_datatype_enum for a in definition.input_arg]
    count = FUSED[op_type].num_handles
    assert handles == [True] * count + [False] * (len(handles) - count)
    assert definition.input_arg[FUSED[op_type].gradient].name in ("grad", "delta")


def test_every_dense_fused_update_of_tensorflow_is_in_the_table() -> None:
    assert {name for name in dir(tf.raw_ops) if name.startswith("ResourceApply")} == set(FUSED)

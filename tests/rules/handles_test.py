"""An op writes as many variables as its table says, and as TensorFlow's definition has."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.handles import num_written
from tf_wu_shard.rules.sparse import SPARSE_WRITES
from tf_wu_shard.rules.variables import READ, WRITES
from tf_wu_shard.tensorflow_private import function_graph


@pytest.mark.parametrize("op_type", [*WRITES, *FUSED, *SPARSE_WRITES])
def test_the_written_handles_are_the_first_operands(op_type: str) -> None:
    definition = function_graph.op_def(op_type)
    assert definition is not None
    are_handles = [a.type == tf.resource.as_datatype_enum for a in definition.input_arg]
    assert num_written(op_type) == sum(are_handles) == are_handles.index(False)


@pytest.mark.parametrize("op_type", [READ, "Mul", "ResourceGather"])
def test_what_writes_nothing_is_in_no_table(op_type: str) -> None:
    assert num_written(op_type) == 0

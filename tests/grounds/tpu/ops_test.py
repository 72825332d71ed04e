"""What the ground says of an op type holds of an op that TensorFlow has under that name."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tf_wu_shard.grounds.tpu import ops
from tf_wu_shard.tensorflow_private.function_graph import op_def

NAMED = {ops.METADATA, ops.REPLICATED_INPUT} | ops.ACROSS_REPLICAS


@pytest.mark.parametrize("op_type", sorted(NAMED))
def test_tensorflow_knows_every_op_that_is_named(op_type: str) -> None:
    assert op_def(op_type) is not None


def test_no_op_both_gives_all_replicas_the_same_and_each_its_own() -> None:
    assert ops.SUM in ops.REDUCTIONS and ops.TOLD in ops.OWN
    assert not ops.REDUCTIONS & ops.OWN


@pytest.mark.parametrize("op_type", sorted(ops.REDUCTIONS | {ops.TOLD, "XlaReduceScatter"}))
def test_what_is_exchanged_within_groups_takes_them_as_its_second_operand(op_type: str) -> None:
    definition = op_def(op_type)
    assert definition is not None
    assert definition.input_arg[1].name == "group_assignment"


def test_the_metadata_says_how_many_replicas_run_a_program() -> None:
    with tf.Graph().as_default() as graph:
        tf.raw_ops.TPUReplicateMetadata(num_replicas=3)
    (op,) = graph.get_operations()
    assert op.type == ops.METADATA and op.get_attr("num_replicas") == 3


def test_a_node_of_no_program_names_none() -> None:
    node = tf.compat.v1.NodeDef(name="n", op="NoOp")
    assert ops.program_of(node) == b""
    node.attr["_tpu_replicate"].s = b"cluster"
    assert ops.program_of(node) == b"cluster"

"""A collective of a TPU program goes along one axis of the torus at a time."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.dtypes import BFLOAT16, FLOAT32, INT32
from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.op import Value
from tf_wu_shard.grounds.tpu import all_gather_module, axis_ops
from tf_wu_shard.grounds.tpu.torus import Groups

# Two along one axis and three along the other.
FIRST: Groups = ((0, 3), (1, 4), (2, 5))
SECOND: Groups = ((0, 1, 2), (3, 4, 5))


def constant(builder: GraphBuilder, name: str) -> Any:
    """What a constant holds."""
    (node,) = (node for node in builder.nodes if node.name == name)
    return tf.make_ndarray(node.attr["value"].tensor).tolist()


def test_a_matrix_is_scattered_along_its_runs_by_each_axis_in_turn() -> None:
    builder = GraphBuilder((), lambda value: FLOAT32)
    found = axis_ops.reduce_scatter(builder.at("", "sum"), Value("m"), (48, 128), (FIRST, SECOND))
    runs, first, second, own = (node for node in builder.nodes if node.op != "Const")
    assert (runs.op, runs.input[0], constant(builder, runs.input[1])) == (
        "Reshape",
        "m",
        [6, 8, 128],
    )
    assert (first.op, second.op) == ("XlaReduceScatter",) * 2
    assert (first.input[0], second.input[0], own.input[0]) == (runs.name, first.name, second.name)
    groups = [constant(builder, node.input[1]) for node in (first, second)]
    assert groups == [[[0, 3], [1, 4], [2, 5]], [[0, 1, 2], [3, 4, 5]]]
    for node in (first, second):
        # The runs are the first dimension.
        assert constant(builder, node.input[2]) == 0 and node.attr["reduce_op"].s == b"Add"
    assert constant(builder, own.input[1]) == [8, 128] and found == Value(own.name)


def test_what_is_gathered_is_as_many_times_as_high_as_a_group_is_large() -> None:
    builder = GraphBuilder((), lambda value: BFLOAT16)
    found = axis_ops.all_gather(builder.at("", "whole"), Value("m"), (8, 128), SECOND)
    (node,) = builder.nodes
    assert (node.op, [*node.input], found) == ("XlaCallModule", ["m"], Value(node.name))
    assert [d.size for d in node.attr["Sout"].list.shape[0].dim] == [24, 128]
    assert builder.dtype(found) == BFLOAT16
    read = all_gather_module.read(node.attr["module"].s.decode())
    assert read is not None and read.groups == SECOND
    assert "tensor<8x128xbf16>) -> tensor<24x128xbf16>" in node.attr["module"].s.decode()
    assert [*node.attr["platforms"].list.s] == [b"TPU"]


def test_floats_are_scattered_and_numbers_are_not() -> None:
    assert {FLOAT32, BFLOAT16} < axis_ops.SCATTERED and INT32 not in axis_ops.SCATTERED

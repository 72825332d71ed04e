"""Collectives that only a TPU host runs get the same HLO by ops that any machine lowers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.tpu_compiler.collectives import CollectiveError, with_xla_forms


def nodes_of(*ops: tuple[str, str, dict[str, int]], dtype: tf.DType = tf.float32) -> list[Any]:
    """An operand x, groups of replicas as a constant, and ops that take both."""
    graph_def = tf.compat.v1.GraphDef()
    x = graph_def.node.add(name="x", op="Placeholder")
    x.attr["dtype"].type = dtype.as_datatype_enum
    groups = graph_def.node.add(name="groups", op="Const")
    groups.attr["dtype"].type = tf.int32.as_datatype_enum
    groups.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array([[0, 1], [2, 3]], np.int32)))
    for name, op, numbers in ops:
        node = graph_def.node.add(name=name, op=op, input=["x", "groups", "^x"], device="d")
        node.attr["T"].type = dtype.as_datatype_enum
        for key, value in numbers.items():
            node.attr[key].i = value
    return list(graph_def.node)


SPLIT = {"split_dimension": 0, "concat_dimension": 1, "split_count": 2}


def test_a_sum_is_an_all_reduce_of_the_same_groups() -> None:
    nodes = nodes_of(("sum", "CrossReplicaSum", {}))
    *others, new = with_xla_forms(nodes, {})
    assert others == nodes[:2] and nodes[2].op == "CrossReplicaSum"
    assert (new.name, new.op, new.device) == ("sum", "XlaAllReduce", "d")
    assert list(new.input) == ["x", "groups", "^x"] and new.attr["reduce_op"].s == b"Add"


def test_an_all_to_all_is_a_module_of_the_cut_and_joined_shape() -> None:
    *_, new = with_xla_forms(nodes_of(("turn", "AllToAll", SPLIT)), {"turn": (4, 6)})
    assert new.op == "XlaCallModule" and list(new.input) == ["x", "^x"]
    (shape,) = new.attr["Sout"].list.shape
    assert [dim.size for dim in shape.dim] == [2, 12]
    text = new.attr["module"].s.decode()
    assert "stablehlo.all_to_all" in text and "(tensor<4x6xf32>) -> tensor<2x12xf32>" in text
    assert "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>" in text


def test_a_permutation_keeps_its_shape_and_a_scalar_is_one() -> None:
    *_, new = with_xla_forms(
        nodes_of(("move", "CollectivePermute", {}), dtype=tf.bfloat16), {"move": ()}
    )
    text = new.attr["module"].s.decode()
    assert "source_target_pairs" in text and "(tensor<bf16>) -> tensor<bf16>" in text


def test_what_must_be_constant_and_is_not_is_told() -> None:
    nodes = nodes_of(("turn", "AllToAll", SPLIT))
    with pytest.raises(CollectiveError, match=r"turn \(AllToAll\): its shape must be constant"):
        with_xla_forms(nodes, {})
    nodes[1].op = "Placeholder"
    with pytest.raises(CollectiveError, match="its groups must be constant"):
        with_xla_forms(nodes, {"turn": (4, 6)})


def test_a_type_without_a_form_is_told_by_its_name() -> None:
    with pytest.raises(CollectiveError, match="no form for complex64"):
        with_xla_forms(
            nodes_of(("move", "CollectivePermute", {}), dtype=tf.complex64), {"move": (4,)}
        )

"""Nodes are imported under their own names, on the devices they name, beside the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import func_graph, ops

from tf_wu_shard.tensorflow_private.node_import import (
    import_beside,
    import_nodes,
    scopes,
)


def nodes_of(body: Any, *specs: tf.TensorSpec) -> dict[str, Any]:
    graph = tf.function(body, autograph=False).get_concrete_function(*specs).graph
    return {node.name: node for node in graph.as_graph_def().node}


def test_nodes_keep_their_names_and_devices_whatever_scopes_are_open() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/device:CPU:0"), tf.name_scope("own"):
            return tf.negative(x, name="negated")

    nodes = nodes_of(body, tf.TensorSpec((2,)))
    new = func_graph.FuncGraph("new")
    with new.as_default(), ops.name_scope(None):
        (x,) = (name for name, node in nodes.items() if node.op == "Placeholder")
        import_nodes(new, tf.compat.v1.GraphDef(node=[nodes[x]]), {})
        inputs = {x: new.get_tensor_by_name(f"{x}:0")}
        with tf.device("/device:CPU:1"), tf.name_scope("another"):
            import_beside(new, nodes, inputs)
        # The graph knows the names, and gives none of them again.
        assert tf.negative(inputs[x], name="own/negated").op.name == "own/negated_1"
    negated = new.get_operation_by_name("own/negated")
    assert negated.inputs[0] is inputs[x]
    assert negated.device.endswith("CPU:0")


def test_nothing_waits_for_an_input() -> None:
    x = tf.compat.v1.NodeDef(name="x", op="Placeholder")
    y = tf.compat.v1.NodeDef(name="y", op="Neg")
    x.attr["dtype"].type = y.attr["T"].type = tf.float32.as_datatype_enum
    y.input.extend(["x", "^x"])
    new = func_graph.FuncGraph("new")
    with new.as_default(), ops.name_scope(None):
        import_nodes(new, tf.compat.v1.GraphDef(node=[x]), {})
        import_beside(new, {"x": x, "y": y}, {"x": new.get_tensor_by_name("x:0")})
    assert new.get_operation_by_name("y").control_inputs == []


def test_what_tensorflow_does_not_accept_is_an_error() -> None:
    node = tf.compat.v1.NodeDef(name="y", op="Neg", input=["gone"])
    node.attr["T"].type = tf.float32.as_datatype_enum
    with (
        func_graph.FuncGraph("new").as_default() as new,
        pytest.raises(tf.errors.InvalidArgumentError, match="gone"),
    ):
        import_nodes(new, tf.compat.v1.GraphDef(node=[node]), {})


def test_a_name_lies_in_every_scope_before_its_last_word() -> None:
    assert scopes("a/b/c") == ["a", "a/b"]

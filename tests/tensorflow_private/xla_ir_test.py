"""A function is lowered without a value, its variables' new values among its results."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private.xla_ir import hlo_of


def graph_of(kind: str = "Square") -> Any:
    """w += f(x), and f(x) is returned."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (4,), name="x")
        w = tf.compat.v1.placeholder(tf.resource, (), name="w")
        y = getattr(tf.raw_ops, kind)(x=x, name="y")
        tf.raw_ops.AssignAddVariableOp(resource=w, value=y, name="step")
    return graph.as_graph_def()


def lowered(graph_def: Any) -> bytes:
    spec = tf.TensorSpec((4,), tf.float32)
    return hlo_of(
        graph_def, tensors={"x": spec}, variables={"w": spec}, outputs=["y:0"], effects=["step"]
    )


def test_what_a_step_computes_and_writes_is_in_its_module() -> None:
    module = lowered(graph_of())
    assert b"multiply" in module and b"add" in module
    assert b"negate" not in module and b"negate" in lowered(graph_of("Neg"))


def test_an_op_without_a_kernel_of_xlas_is_tensorflows_error() -> None:
    with tf.Graph().as_default() as graph:
        tf.compat.v1.placeholder(tf.float32, (4,), name="x")
        tf.compat.v1.placeholder(tf.resource, (), name="w")
        tf.raw_ops.StringFormat(inputs=[tf.constant(1.0)], name="y")
    with pytest.raises((tf.errors.OpError, ValueError)):
        hlo_of(
            graph.as_graph_def(),
            tensors={"x": tf.TensorSpec((4,))},
            variables={"w": tf.TensorSpec((4,))},
            outputs=["y:0"],
            effects=[],
        )

"""Ops on a variable's handle, done to its value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.program.nodes import nodes, written
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.value_ops import on_value

W = VariableRef("w", 0, 4, (3, 5), 1, mirrored=True, device="", trainable=True)


def some(found: list[Any] | None) -> list[Any]:
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("y = ReadVariableOp(w) ^x", ["y = Identity(now, ^x)"]),
        ("y = AssignVariableOp(w, v)", ["y = Identity(v)"]),
        ("y = AssignAddVariableOp(w, v) ^x", ["y = AddV2(now, v, ^x)"]),
        ("y = AssignSubVariableOp(w, v)", ["y = Sub(now, v)"]),
        ("y = ResourceGather(w, i)", ["y = GatherV2(now, i, y/axis)", "y/axis = Const()"]),
        ("y = ResourceGatherNd(w, i)", ["y = GatherNd(now, i)"]),
        ("y = VarIsInitializedOp(w)", ["y = Const()"]),
        ("y = VariableShape(w)", ["y = Const()"]),
    ],
)
def test_it_becomes_an_op_on_the_value(op: str, expected: list[str]) -> None:
    (node,) = nodes(op)
    if node.op == "VariableShape":
        node.attr["out_type"].type = tf.int32.as_datatype_enum
    found = on_value(node, "now", W)
    assert found is not None
    assert found[-1].name == "y"
    assert written(found) == expected


def test_what_is_known_of_the_variable_is_a_constant() -> None:
    shape, there = nodes("s = VariableShape(w)\nt = VarIsInitializedOp(w)")
    shape.attr["out_type"].type = tf.int64.as_datatype_enum
    (known,) = some(on_value(shape, "now", W))
    assert tf.make_ndarray(known.attr["value"].tensor).tolist() == [3, 5]
    assert tf.make_ndarray(known.attr["value"].tensor).dtype == np.int64
    (known,) = some(on_value(there, "now", W))
    assert tf.make_ndarray(known.attr["value"].tensor).item() is True


def test_it_stays_in_its_program() -> None:
    (node,) = nodes("y = ResourceGather(w, i)")
    node.attr["_tpu_replicate"].s = b"cluster"
    for made in some(on_value(node, "now", W)):
        assert made.attr["_tpu_replicate"].s == b"cluster"


def test_a_lookup_in_batches_is_along_the_first_axis_after_them() -> None:
    variable = tf.Variable(np.arange(24.0).reshape(2, 3, 4))
    indices = [[2, 0], [1, 1]]

    @tf.function
    def look() -> tf.Tensor:
        return tf.raw_ops.ResourceGather(
            resource=variable.handle, indices=indices, dtype=tf.float64, batch_dims=1
        )

    function = look.get_concrete_function()
    (node,) = (n for n in function.graph.as_graph_def().node if n.op == "ResourceGather")
    ref = VariableRef("w", 0, 1, (2, 3, 4), 2, mirrored=True, device="")
    axis, gather = some(on_value(node, "now", ref))
    found = tf.raw_ops.GatherV2(
        params=variable.numpy(),
        indices=indices,
        axis=tf.make_ndarray(axis.attr["value"].tensor),
        batch_dims=gather.attr["batch_dims"].i,
    )
    np.testing.assert_array_equal(found, look())


@pytest.mark.parametrize("op", ["ResourceScatterAdd", "ResourceApplyGradientDescent", "Pack"])
def test_what_needs_the_handle_has_no_such_form(op: str) -> None:
    (node,) = nodes(f"y = {op}(w, v)")
    assert on_value(node, "now", W) is None

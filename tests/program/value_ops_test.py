"""Ops on a variable's handle, done to its value."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.program.nodes import nodes, written
from tf_wu_shard.graph.view import VariableRef
from tf_wu_shard.program.value_ops import is_write, on_value

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
        (
            "y = ResourceGather(w, i)",
            ["y = GatherV2(now, i, y/wu_shard_axis)", "y/wu_shard_axis = Const()"],
        ),
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


@functools.cache
def scattered_variable() -> tf.Variable:
    return tf.Variable(np.zeros((4, 3)))


def changed_rows(change: str) -> None:
    op = getattr(tf.raw_ops, f"ResourceScatter{change}")
    updates = tf.constant([[9.0, -9.0, 0.5]] * 3, tf.float64)
    op(resource=scattered_variable().handle, indices=[2, 0, 2], updates=updates)


def changed_elements(change: str) -> None:
    op = getattr(tf.raw_ops, f"ResourceScatterNd{change}")
    op(
        ref=scattered_variable().handle,
        indices=[[2, 1], [0, 0], [2, 1]],
        updates=tf.constant([9.0, -9.0, 0.5], tf.float64),
    )


def assigned_slice(_: str) -> None:
    tf.raw_ops.ResourceStridedSliceAssign(
        ref=scattered_variable().handle,
        begin=[1, 0],
        end=[3, 0],
        strides=[1, 2],
        value=tf.constant([[7.0, 8.0], [5.0, 6.0]], tf.float64),
        end_mask=2,
    )


@pytest.mark.parametrize(
    ("write", "change"),
    [
        *((changed_rows, c) for c in ("Update", "Add", "Sub", "Min", "Max")),
        *((changed_elements, c) for c in ("Update", "Add", "Sub", "Min", "Max")),
        (assigned_slice, ""),
    ],
)
def test_a_partial_write_makes_the_value_that_the_variable_would_have(
    write: Callable[[str], None], change: str
) -> None:
    whole = np.arange(12.0).reshape(4, 3)
    scattered_variable().assign(whole)
    function = tf.function(lambda: write(change)).get_concrete_function()
    graph_def = function.graph.as_graph_def()
    (node,) = (n for n in graph_def.node if n.op.startswith("Resource"))
    ref = VariableRef("w", 0, 1, (4, 3), tf.float64.as_datatype_enum, mirrored=True, device="")
    assert is_write(node.op)
    graph_def.node.extend(some(on_value(node, "now", ref)))
    graph_def.node.remove(node)
    graph_def.node.add(name="now", op="Placeholder").attr["dtype"].type = ref.dtype
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        found = session.run(f"{node.name}:0", {"now:0": whole})
    function()
    np.testing.assert_array_equal(found, scattered_variable().numpy())
    assert not np.array_equal(found, whole)


@pytest.mark.parametrize("op", ["ResourceScatterMul", "ResourceApplyGradientDescent", "Pack"])
def test_what_needs_the_handle_has_no_such_form(op: str) -> None:
    (node,) = nodes(f"y = {op}(w, v)")
    assert on_value(node, "now", W) is None

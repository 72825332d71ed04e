"""Each shape function says what TensorFlow's own says, of whole shapes and of open ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.inferring import inference_of, is_compatible, static
from tf_wu_shard.dtypes import BOOL, FLOAT32, INT32
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.shape_functions import SHAPES
from tf_wu_shard.tensorflow_private import function_graph

Build = Callable[..., Any]

# What is written down by hand: how an op is called, and the shapes of its operands.
SPELLED_OUT: list[tuple[str, Build, Sequence[tuple[int, ...]]]] = [
    ("MatMul", lambda a, b: tf.matmul(a, b), [(2, 3), (3, 5)]),
    ("MatMul", lambda a, b: tf.matmul(a, b, transpose_a=True), [(3, 2), (3, 5)]),
    ("MatMul", lambda a, b: tf.matmul(a, b, transpose_b=True), [(2, 3), (5, 3)]),
    ("BatchMatMulV2", lambda a, b: tf.raw_ops.BatchMatMulV2(x=a, y=b), [(4, 1, 2, 3), (7, 3, 5)]),
    (
        "BatchMatMulV2",
        lambda a, b: tf.raw_ops.BatchMatMulV2(x=a, y=b, adj_x=True, adj_y=True),
        [(4, 3, 2), (4, 5, 3)],
    ),
    (
        "BatchMatMulV3",
        lambda a, b: tf.raw_ops.BatchMatMulV3(x=a, y=b, Tout=tf.float32, adj_y=True),
        [(4, 2, 3), (4, 5, 3)],
    ),
    ("Select", lambda a, b: tf.raw_ops.Select(condition=a[:, 0] > 0, x=a, y=b), [(2, 3), (2, 3)]),
    ("SelectV2", lambda a, b: tf.where(a > 0, a, b), [(2, 1), (3,)]),
    ("IdentityN", lambda a, b: tf.raw_ops.IdentityN(input=[a, b])[1], [(2, 3), (4,)]),
    ("Reshape", lambda a: tf.reshape(a, (3, -1)), [(2, 6)]),
    ("Reshape", lambda a: tf.reshape(a, (4, 3)), [(2, 6)]),
    ("Reshape", lambda a: tf.reshape(a, (-1,)), [()]),
    ("EnsureShape", lambda a: tf.ensure_shape(a, (None, 6)), [(2, 6)]),
    ("ExpandDims", lambda a: tf.expand_dims(a, 1), [(2, 6)]),
    ("ExpandDims", lambda a: tf.expand_dims(a, -1), [(2, 6)]),
    ("ExpandDims", lambda a: tf.expand_dims(a, -3), [(2, 6)]),
    ("Squeeze", lambda a: tf.squeeze(a), [(1, 6, 1)]),
    ("Squeeze", lambda a: tf.squeeze(a, (-1,)), [(1, 6, 1)]),
    ("Transpose", lambda a: tf.transpose(a, (2, 0, 1)), [(2, 3, 4)]),
    ("ConcatV2", lambda a, b: tf.concat([a, b], -1), [(2, 3), (2, 5)]),
    ("ConcatV2", lambda a, b: tf.concat([a, b], 0), [(2, 3), (4, 3)]),
    ("SplitV", lambda a: tf.split(a, (2, -1, 3), 1)[1], [(2, 9)]),
    ("SplitV", lambda a: tf.split(a, (2, 7), -1)[0], [(2, 9)]),
    ("BiasAddGrad", lambda a: tf.raw_ops.BiasAddGrad(out_backprop=a), [(2, 4, 4, 3)]),
    (
        "BiasAddGrad",
        lambda a: tf.raw_ops.BiasAddGrad(out_backprop=a, data_format="NCHW"),
        [(2, 3, 4, 4)],
    ),
    (
        "Conv2DBackpropFilter",
        lambda a, b: tf.raw_ops.Conv2DBackpropFilter(
            input=a, filter_sizes=[3, 3, 2, 6], out_backprop=b, strides=[1] * 4, padding="SAME"
        ),
        [(5, 8, 8, 2), (5, 8, 8, 6)],
    ),
    (
        "Conv3DBackpropFilterV2",
        lambda a, b: tf.raw_ops.Conv3DBackpropFilterV2(
            input=a, filter_sizes=[1, 3, 3, 2, 6], out_backprop=b, strides=[1] * 5, padding="SAME"
        ),
        [(5, 2, 8, 8, 2), (5, 2, 8, 8, 6)],
    ),
    (
        "DepthwiseConv2dNativeBackpropFilter",
        lambda a, b: tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
            input=a, filter_sizes=[3, 3, 2, 3], out_backprop=b, strides=[1] * 4, padding="SAME"
        ),
        [(5, 8, 8, 2), (5, 8, 8, 6)],
    ),
    (
        "StridedSliceGrad",
        lambda a: tf.raw_ops.StridedSliceGrad(
            shape=[4, 5], begin=[0, 1], end=[4, 3], strides=[1, 1], dy=a
        ),
        [(4, 2)],
    ),
    ("BroadcastTo", lambda a: tf.broadcast_to(a, (4, 2, 3)), [(2, 1)]),
    ("Fill", lambda a: tf.raw_ops.Fill(dims=[4, 0, 3], value=a), [()]),
    (
        "UnsortedSegmentSum",
        lambda a: tf.math.unsorted_segment_sum(a, [[0, 1, 1], [2, 0, 3]], 4),
        [(2, 3, 5)],
    ),
    ("Slice", lambda a: tf.slice(a, (1, 2), (-1, 2)), [(4, 6)]),
    ("Slice", lambda a: tf.slice(a, (0, 6), (2, -1)), [(4, 6)]),
    ("Einsum", lambda a, b: tf.einsum("abc,cd->abd", a, b), [(2, 3, 4), (4, 5)]),
    ("Einsum", lambda a, b: tf.einsum("ab,ab->b", a, b), [(2, 3), (2, 3)]),
    ("Pack", lambda a, b: tf.stack([a, b], -1), [(2, 3), (2, 3)]),
    ("Pack", lambda a, b: tf.stack([a, b], 0), [(2, 3), (2, 3)]),
    ("Shape", lambda a: tf.raw_ops.Shape(input=a), [(2, 3)]),
    ("ShapeN", lambda a, b: tf.raw_ops.ShapeN(input=[a, b])[1], [(2,), (2, 3)]),
    ("Size", lambda a: tf.raw_ops.Size(input=a), [(2, 3)]),
    ("Rank", lambda a: tf.raw_ops.Rank(input=a), [(2, 3)]),
    ("L2Loss", lambda a: tf.nn.l2_loss(a), [(2, 3)]),
    ("AddN", lambda a, b: tf.raw_ops.AddN(inputs=[a, b]), [(2, 3), (2, 3)]),
    ("Cast", lambda a: tf.cast(a, tf.float64), [(2, 3)]),
    ("BiasAdd", lambda a, b: tf.nn.bias_add(a, b), [(2, 3), (3,)]),
    (
        "ClipByValue",
        lambda a, b, c: tf.raw_ops.ClipByValue(t=a, clip_value_min=b, clip_value_max=c),
        [(2, 3), (), ()],
    ),
    ("CheckNumerics", lambda a: tf.debugging.check_numerics(a, ""), [(2, 3)]),
    ("Snapshot", lambda a: tf.raw_ops.Snapshot(input=a), [(2, 3)]),
    *(
        (name, lambda a, op=name, axes=axes, keep=keep: _reduced(op, a, axes, keep), [(2, 3, 4)])
        for name in ("Sum", "Mean", "Prod", "Max", "Min", "All", "Any", "EuclideanNorm")
        for axes, keep in (((0,), False), ((-1, 0), False), ((1,), True), ((), False))
    ),
]

# What only several devices or XLA have; the tests of their grounds have programs with them.
ELSEWHERE = {
    *("CollectiveReduceV2", "CrossReplicaSum", "XlaAllReduce", "XlaDynamicUpdateSlice"),
    *("XlaOptimizationBarrier", "XlaReduceScatter", "XlaCallModule"),
}

# What is known of the inputs, where it is not all; of results nothing is.
OPEN: tuple[Callable[[tf.Tensor], Any], ...] = (
    lambda x: (None, *x.shape[1:])[: x.shape.rank] if x.op.type == "Placeholder" else None,
    lambda x: (None,) * x.shape.rank if x.op.type == "Placeholder" else None,
    lambda x: None,
)

BY_ELEMENT = sorted(SHAPES.keys() - {name for name, *_ in SPELLED_OUT} - ELSEWHERE)


def _reduced(op: str, value: tf.Tensor, axes: tuple[int, ...], keep: bool) -> tf.Tensor:
    operand = value > 0 if op in ("All", "Any") else value
    axis = tf.constant(axes, tf.int32)
    return getattr(tf.raw_ops, op)(input=operand, axis=axis, keep_dims=keep)


def agrees(op_type: str, build: Build, specs: Sequence[tf.TensorSpec]) -> None:
    """Checks what is inferred of the last op of a type, however much of the inputs is known."""
    graph = tf.function(build, autograph=False).get_concrete_function(*specs).graph
    op = next(op for op in reversed(graph.get_operations()) if op.type == op_type)
    known = inference_of(graph, lambda x: static(x) if x.op.type == "Placeholder" else None)
    of_open = [inference_of(graph, stated) for stated in OPEN]
    for number, result in enumerate(op.outputs):
        value, whole = Value(op.name, number), tuple(result.shape)
        assert known.shape(value) == whole
        for inference in of_open:
            assert is_compatible(inference.shape(value), whole)


@pytest.mark.parametrize(("op_type", "build", "shapes"), SPELLED_OUT)
def test_a_function_says_what_tensorflow_says(
    op_type: str, build: Build, shapes: Sequence[tuple[int, ...]]
) -> None:
    agrees(op_type, build, [tf.TensorSpec(shape) for shape in shapes])


@pytest.mark.parametrize("op_type", BY_ELEMENT)
def test_elementwise_ops_keep_or_broadcast_the_shapes_of_their_operands(op_type: str) -> None:
    definition: Any = function_graph.op_def(op_type)
    names = [argument.name for argument in definition.input_arg]
    allowed = {
        number
        for declared in definition.attr
        if declared.name == "T"
        for number in declared.allowed_values.list.type
    }
    dtype = next((d for d in (FLOAT32, INT32) if d in allowed), FLOAT32 if allowed else BOOL)
    if not definition.attr:
        dtype = definition.input_arg[0].type
    is_broadcast = SHAPES[op_type] is SHAPES["AddV2"]
    shapes = [(2, 1, 3), (5, 1)] if is_broadcast else [(2, 3)] * len(names)
    specs = [tf.TensorSpec(shape, tf.dtypes.as_dtype(dtype)) for shape in shapes]
    op = getattr(tf.raw_ops, op_type)
    agrees(op_type, lambda *xs: op(**dict(zip(names, xs, strict=True))), specs)

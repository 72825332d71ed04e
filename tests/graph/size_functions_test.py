"""What is inferred of vectors of sizes is what a step computes, element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.graph.inferring import inference_of, is_compatible, static
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.size_functions import SIZES

# From a tensor of shape (6, 2, 3) and its sizes to a vector of sizes.
Sizes = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

CASES: list[tuple[str, Sizes]] = [
    ("Const", lambda x, s: tf.constant([4, 5])),
    ("Const", lambda x, s: tf.constant([], tf.int32)),
    ("Shape", lambda x, s: tf.raw_ops.Shape(input=x)),
    ("ShapeN", lambda x, s: tf.raw_ops.ShapeN(input=[x[0], x])[1]),
    ("Size", lambda x, s: tf.raw_ops.Pack(values=[tf.raw_ops.Size(input=x)])),
    ("Rank", lambda x, s: tf.raw_ops.Pack(values=[tf.raw_ops.Rank(input=x)])),
    ("Identity", lambda x, s: tf.identity(s)),
    ("IdentityN", lambda x, s: tf.identity_n([s[:1], s])[1]),
    ("StopGradient", lambda x, s: tf.stop_gradient(s)),
    ("Cast", lambda x, s: tf.cast(s, tf.int64)),
    ("Reshape", lambda x, s: tf.reshape(s[0], (1,))),
    ("ExpandDims", lambda x, s: tf.expand_dims(s[1], 0)),
    ("Squeeze", lambda x, s: tf.raw_ops.Pack(values=[tf.squeeze(s[1:2])])),
    ("EnsureShape", lambda x, s: tf.ensure_shape(s, (3,))),
    ("Pack", lambda x, s: tf.raw_ops.Pack(values=[s[2], 7, s[0]])),
    ("ConcatV2", lambda x, s: tf.concat([s[1:], [9], s[:1]], 0)),
    ("ConcatV2", lambda x, s: tf.concat([s[:0], s], 0)),
    ("GatherV2", lambda x, s: tf.gather(s, [2, 0, 2])),
    ("Slice", lambda x, s: tf.slice(s, (1,), (2,))),
    ("Slice", lambda x, s: tf.slice(s, (1,), (-1,))),
    ("Prod", lambda x, s: tf.raw_ops.Pack(values=[tf.raw_ops.Prod(input=s[1:], axis=[0])])),
    ("Prod", lambda x, s: tf.raw_ops.Prod(input=s, axis=-1, keep_dims=True)),
    ("Add", lambda x, s: tf.raw_ops.Add(x=s, y=s)),
    ("AddV2", lambda x, s: s + 1),
    ("Sub", lambda x, s: 10 - s),
    ("Mul", lambda x, s: s * [1, 2, 3]),
    ("FloorDiv", lambda x, s: s // 4),
    ("FloorDiv", lambda x, s: (2 - s) // 4 + 3),
    ("Maximum", lambda x, s: tf.maximum(s, 3)),
    ("Minimum", lambda x, s: tf.minimum(s, [5, 1, 9])),
    *(
        ("StridedSlice", lambda x, s, cut=cut: s[cut])
        for cut in (
            # TensorFlow itself traces no others of a shape: none whole in reverse, none from -9.
            *(slice(1, None), slice(None, -1), slice(2, 0, -1), slice(-1, None), slice(5, 9)),
            *(slice(0, 3, 2), slice(1, 1)),
        )
    ),
    ("StridedSlice", lambda x, s: tf.raw_ops.Pack(values=[s[-2]])),
]


def test_every_function_has_a_case() -> None:
    assert {op_type for op_type, _ in CASES} == SIZES.keys()


@pytest.mark.parametrize("shape", [(6, 2, 3), (None, 2, 3), (None, None, None)])
@pytest.mark.parametrize(("op_type", "sizes"), CASES)
def test_elements_are_those_that_are_computed(
    op_type: str, sizes: Sizes, shape: tuple[int | None, ...]
) -> None:
    @tf.function(autograph=False, input_signature=[tf.TensorSpec(shape)])
    def filled(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # The sizes of an input whose shape TensorFlow knows would be constants.
        found = sizes(x, tf.raw_ops.Shape(input=x))
        return found, tf.fill(found, 0.0)

    computed, _ = filled(np.zeros((6, 2, 3), np.float32))
    graph = filled.get_concrete_function().graph
    assert any(op.type == op_type for op in graph.get_operations())
    (fill,) = (op for op in graph.get_operations() if op.type == "Fill")
    inference = inference_of(graph, lambda x: None if x.op.type == "Fill" else static(x))
    found, whole = inference.shape(Value(fill.name)), tuple(int(size) for size in computed)
    assert is_compatible(found, whole)
    assert found == whole or None in shape

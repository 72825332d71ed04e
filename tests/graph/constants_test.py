"""What constants hold, read as TensorFlow writes them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.graph.constants import floating_scalar, integers


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("number", [0.0, 1.0, -2.5, 8.0])
def test_a_floating_scalar_in_every_way_of_writing_it(dtype: tf.DType, number: float) -> None:
    assert floating_scalar(tf.make_tensor_proto(number, dtype)) == number
    # With its elements as bytes.
    held = np.array(number, dtype.as_numpy_dtype)
    proto = tf.make_tensor_proto(0.0, dtype)
    for field in ("half_val", "float_val", "double_val"):
        proto.ClearField(field)
    proto.tensor_content = held.tobytes()
    assert floating_scalar(proto) == number


def test_what_is_no_floating_scalar() -> None:
    assert floating_scalar(None) is None
    assert floating_scalar(tf.make_tensor_proto(2, tf.int32)) is None
    assert floating_scalar(tf.make_tensor_proto([1.0, 2.0])) is None


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_integers_of_either_width(dtype: tf.DType) -> None:
    for values in ([], [3], [7, 7, 7], [1, 2, 3]):
        assert integers(tf.make_tensor_proto(values, dtype, [len(values)])) == tuple(values)
    assert integers(None) is None

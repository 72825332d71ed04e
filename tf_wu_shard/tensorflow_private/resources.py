"""Making a variable resource of one's own, emptying one, filling it again, comparing contents.

Answers what becomes of the memory behind a handle. Who may still use that handle is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

# What is left in a freed resource: one element, in more dimensions than NumPy and the broadcasting
# kernels take. An empty tensor would sum to a silent zero where some function still reads it.
_FREED_SHAPE = (1,) * 254


def new_variable(shape: Sequence[int], dtype: tf.DType, name: str) -> tf.Variable:
    """Makes a variable that no strategy or function knows about, on the current device.

    Args:
        shape: Its shape.
        dtype: Its element type.
        name: What it is called.

    Returns:
        A plain, untrainable variable with a handle and no value yet.
    """
    return resource_variable_ops.UninitializedVariable(
        trainable=False, name=name, shape=tuple(shape), dtype=dtype
    )


def free(handles: Sequence[Any], dtype: tf.DType) -> None:
    """Frees the values of resources and leaves in their place what no reader takes for a value.

    Args:
        handles: Eager handles of variables.
        dtype: The variables' element type.
    """
    filler = np.nan if dtype.is_floating or dtype.is_complex else 0
    with tf.init_scope():
        left = tf.fill(_FREED_SHAPE, tf.cast(filler, dtype))
    for handle in handles:
        refill(handle, left)


def refill(handle: Any, value: tf.Tensor) -> None:
    """Gives a freed resource a value again, of any shape.

    Args:
        handle: The eager handle of a variable.
        value: What to store, an eager tensor.
    """
    with tf.init_scope(), tf.device(handle.device):
        tf.raw_ops.AssignVariableOp(resource=handle, value=value, validate_shape=False)


def same_bits(first: tf.Tensor, second: tf.Tensor) -> bool:
    """Whether two eager tensors hold the same bits; at once when they share their buffer.

    Args:
        first: Any tensor.
        second: One of the same shape and dtype.
    """
    left, right = np.atleast_1d(first._numpy()), np.atleast_1d(second._numpy())
    shared = left.__array_interface__["data"] == right.__array_interface__["data"]
    return shared or bool(np.array_equal(left.view(np.uint8), right.view(np.uint8)))

"""Variable resources of our own, emptying a resource, filling it again, comparing contents.

Answers what becomes of the memory behind a handle. Who may still use that handle is not known here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.ops import handle_data_util

# What is left in a freed resource: one element, in more dimensions than NumPy and the broadcasting
# kernels take. An empty tensor would sum to a silent zero where some function still reads it.
_FREED_SHAPE = (1,) * 254

# How many bytes are compared at once.
_PIECE = 1 << 18

# An attribute of the eager handles of variables that were seen to have a value.
_HAD_VALUE = "_wu_shard_had_value"


class Shard:
    """A variable that no strategy and no function knows about, with nothing around its resource.

    A `tf.Variable` takes eight times as long to make, and one is made for each replica and slot.

    Attributes:
        handle: Its resource handle, an eager tensor that owns the resource.
        dtype: Its element type.
    """

    def __init__(self, shape: Sequence[int | None], dtype: tf.DType, device: str) -> None:
        """Makes it without a value.

        Args:
            shape: Its shape; a dimension that is None may have any size.
            dtype: Its element type.
            device: Where it lives.
        """
        with tf.init_scope(), tf.device(device):
            # Of one name for all: TensorFlow builds a kernel for each new one, in 0.5 ms.
            self.handle = tf.raw_ops.VarHandleOp(
                shape=shape, dtype=dtype, shared_name=context.anonymous_name()
            )
        self.handle._handle_data = _handle_data(tuple(shape), dtype)
        self.dtype = dtype

    @property
    def device(self) -> str:
        """Where it lives."""
        return str(self.handle.device)

    def value(self) -> tf.Tensor:
        """What it holds."""
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def assign(self, value: tf.Tensor) -> None:
        """Replaces the value by one of its shape."""
        tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)

    def assign_add(self, value: tf.Tensor) -> None:
        """Adds to the value."""
        tf.raw_ops.AssignAddVariableOp(resource=self.handle, value=value)

    def assign_sub(self, value: tf.Tensor) -> None:
        """Subtracts from the value."""
        tf.raw_ops.AssignSubVariableOp(resource=self.handle, value=value)


@functools.cache
def _handle_data(shape: tuple[int | None, ...], dtype: tf.DType) -> Any:
    """What shape inference needs of the tensor behind a handle."""
    return handle_data_util.create_handle_data(tf.TensorShape(shape), dtype)


def packed(handles: Sequence[Any]) -> Any:
    """One handle that stands for a resource on each of several devices.

    Args:
        handles: Eager handles of variables of one shape and dtype, each on a device of its own.
    """
    with tf.init_scope():
        together = ops.pack_eager_tensors(list(handles))
    together._handle_data = handles[0]._handle_data
    return together


def free(handles: Sequence[Any], dtype: tf.DType) -> None:
    """Frees the values of resources and leaves in their place what no reader takes for a value.

    Args:
        handles: Eager handles of variables.
        dtype: The variables' element type.
    """
    refill(handles, [_no_value(dtype)] * len(handles))


@functools.cache
def _no_value(dtype: tf.DType) -> tf.Tensor:
    """What freed resources of an element type are left with, one tensor for all."""
    # What cannot be NaN is as far from a plausible sum as it can be.
    filler = np.nan if dtype.is_floating or dtype.is_complex else dtype.is_bool or dtype.min
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.raw_ops.Fill(dims=_FREED_SHAPE, value=tf.constant(filler, dtype))


def refill(handles: Sequence[Any], new: Sequence[tf.Tensor]) -> None:
    """Gives resources values, of any shape.

    Args:
        handles: Eager handles of variables.
        new: For each what to store, an eager tensor.
    """
    # With no device named, an op runs where its resource lives.
    with tf.init_scope(), tf.device(None):
        for handle, value in zip(handles, new, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=value, validate_shape=False)


def have_values(handles: Sequence[Any]) -> bool:
    """Whether every one of these variables was ever assigned a value.

    Args:
        handles: Eager handles of variables.
    """
    # A value may change and never goes, so nobody is asked again who had one.
    asked = [handle for handle in handles if not hasattr(handle, _HAD_VALUE)]
    with tf.init_scope(), tf.device(None):
        for handle in asked:
            if not tf.raw_ops.VarIsInitializedOp(resource=handle):
                return False
            setattr(handle, _HAD_VALUE, True)
    return True


def same_bits(first: tf.Tensor, second: tf.Tensor) -> bool:
    """Whether two eager tensors hold the same bits; at once when they share their buffer.

    Args:
        first: Any tensor.
        second: One of the same shape and dtype.
    """
    left, right = bits(first), bits(second)
    if left.__array_interface__["data"] == right.__array_interface__["data"]:
        return True
    # Piece by piece, so that what comes of a comparison stays in the cache.
    return all(
        np.array_equal(left[begin : begin + _PIECE], right[begin : begin + _PIECE])
        for begin in range(0, left.size, _PIECE)
    )


def values_of(handles: Sequence[Any], dtype: tf.DType) -> list[tf.Tensor]:
    """What variables hold that were assigned a value.

    Args:
        handles: Their eager handles.
        dtype: Their element type.
    """
    with tf.init_scope(), tf.device(None):
        found = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype) for handle in handles]
    for handle in handles:
        setattr(handle, _HAD_VALUE, True)
    return found


def bits(tensor: tf.Tensor) -> Any:
    """The bits of an eager tensor, as an array of uint8."""
    return np.atleast_1d(tensor._numpy()).reshape(-1).view(np.uint8)

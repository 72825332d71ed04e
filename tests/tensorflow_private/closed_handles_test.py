from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.errors import StorageError
from tf_wu_shard.tensorflow_private.closed_handles import ClosedHandle


@pytest.fixture
def handle() -> tf.Tensor:
    variable = tf.Variable([1.0, 2.0])
    variable.handle.keeps = variable
    return variable.handle


def test_attributes_are_those_of_the_original(handle: tf.Tensor) -> None:
    closed = ClosedHandle(handle, "momentum")
    assert closed.original is handle
    assert closed.dtype == tf.resource
    assert (closed.device, closed.shape, closed._id) == (handle.device, (), handle._id)
    assert closed.keeps is handle.keeps
    with pytest.raises(AttributeError):
        _ = closed.no_such_attribute


def test_every_way_into_an_op_is_closed(handle: tf.Tensor) -> None:
    closed = ClosedHandle(handle, "momentum")
    for use in (
        lambda: tf.convert_to_tensor(closed),
        lambda: tf.raw_ops.ReadVariableOp(resource=closed, dtype=tf.float32),
        lambda: tf.raw_ops.ResourceApplyGradientDescent(var=closed, alpha=1.0, delta=[1.0, 1.0]),
        lambda: tf.stack([closed, closed]),
        lambda: np.asarray(closed),
    ):
        with pytest.raises(StorageError, match="momentum"):
            use()


def test_a_copy_stays_closed(handle: tf.Tensor) -> None:
    copied = copy.copy(ClosedHandle(handle, "momentum"))
    assert copied.original is handle
    assert repr(copied) == "<closed handle of sharded variable 'momentum'>"

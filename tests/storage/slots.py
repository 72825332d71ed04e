"""Slots for the storage tests: a mirrored variable, sharded or as TensorFlow makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tf_wu_shard.layout import flat_layout
from tf_wu_shard.storage.pending_slots import prepare
from tf_wu_shard.storage.sharded_slot import ShardedSlot


def values_of(shape: tuple[int, ...], dtype: tf.DType = tf.float32, seed: int = 0) -> np.ndarray:
    """Distinct values of a shape, the same for the same seed."""
    drawn = np.random.default_rng(seed).integers(-99, 99, shape)
    array: np.ndarray = np.asarray(tf.cast(drawn, dtype))
    return array


def memory_of(tensor: tf.Tensor) -> np.ndarray:
    """An eager tensor's own memory; TensorFlow 2.18 hands it out in no other way."""
    return np.asarray(memoryview(tensor))


def mirrored(strategy: tf.distribute.Strategy, value: Any, **keywords: Any) -> tf.Variable:
    """An unsharded mirrored variable, untrainable like a slot."""
    with strategy.scope():
        return tf.Variable(value, trainable=False, **keywords)


def shard(variable: tf.Variable) -> ShardedSlot:
    """Shards a mirrored variable over its own components."""
    layout = flat_layout(tuple(variable.shape), len(variable.values), variable.dtype.size)
    return prepare(variable, layout).commit()


def sharded(strategy: tf.distribute.Strategy, value: Any, **keywords: Any) -> tf.Variable:
    """A mirrored variable that was sharded; its components keep the slot alive."""
    variable = mirrored(strategy, value, **keywords)
    shard(variable)
    return variable

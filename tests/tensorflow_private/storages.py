"""A storage behind a variable that keeps the value whole, and notes what it is asked to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_wu_shard.tensorflow_private.sharded_variables import become_sharded


class Storage:
    """Keeps a value.

    Attributes:
        value: The value.
        done: What was done, and for which replica; None for the value as a whole.
    """

    def __init__(self, value: Any) -> None:
        self.value = tf.constant(value)
        self.done: list[tuple[str, int | None]] = []

    def read(self, replica: int | None) -> tf.Tensor:
        """See `sharded_components.Storage`."""
        self.done.append(("read", replica))
        return self.value

    def write(self, replica: int | None, change: Callable[[tf.Tensor], tf.Tensor]) -> None:
        """See `sharded_components.Storage`."""
        self.done.append(("write", replica))
        self.value = change(self.value)

    def write_elementwise(self, replica: int | None, method: str, operand: tf.Tensor) -> None:
        """See `sharded_components.Storage`."""
        self.done.append((method, replica))
        signs = {"assign_add": 1, "assign_sub": -1}
        self.value = self.value + signs[method] * operand if method in signs else operand


def sharded(strategy: tf.distribute.Strategy, value: Any) -> tf.Variable:
    """A trainable variable that has such a storage behind it, which its components own."""
    with strategy.scope():
        variable = tf.Variable(value, name="weight")
    become_sharded(variable, Storage(value))
    return variable

"""Being told when a program takes a batch outside of a function, and asks all workers for that.

Where a dataset ends, an iterator of several workers sums over them who has a batch left. In a
function that is an op as others are; outside of one it runs at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import input_lib

from tf_wu_shard.tensorflow_private.wrapping import wrap_once


def before_eager_batches(tell: Callable[[], None]) -> None:
    """Tells of it from now on; once for all.

    Args:
        tell: Called on the thread that takes the batch, each time.
    """

    def calculate(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            tell()
        return original(*args, **kwargs)

    wrap_once(input_lib, "_calculate_replicas_with_values", calculate)

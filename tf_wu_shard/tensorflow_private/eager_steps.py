"""Notices gradients that are reduced while no function is being traced.

Such a step has no graph to rewrite. `install` reports it where replicas sum values eagerly: the one
thing that every data-parallel step does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from tf_wu_shard.tensorflow_private.wrapping import wrap_once


def install(notice: Callable[[], None]) -> None:
    """Calls `notice` before every eager reduction of a batch of values over replicas.

    Args:
        notice: What to do; must be cheap. A second installation changes nothing.
    """

    def batch_reduce_to(original: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            notice()
        return original(*args, **kwargs)

    wrap_once(distribute_lib.StrategyExtendedV2, "batch_reduce_to", batch_reduce_to)

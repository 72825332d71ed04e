"""Notices gradients that are reduced while no function is being traced.

Such a step has no graph to rewrite. `install` reports it where replicas sum values eagerly: the one
thing that every data-parallel step does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib


def install(notice: Callable[[], None]) -> None:
    """Calls `notice` before every eager reduction of a batch of values over replicas.

    Args:
        notice: What to do; must be cheap. A second installation changes nothing.
    """
    owner = distribute_lib.StrategyExtendedV2
    original = owner.batch_reduce_to
    if getattr(original, "_wu_shard_hook", False):
        return

    @functools.wraps(original)
    def batch_reduce_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.executing_eagerly():
            notice()
        return original(self, *args, **kwargs)

    batch_reduce_to._wu_shard_hook = True  # type: ignore[attr-defined]
    owner.batch_reduce_to = batch_reduce_to

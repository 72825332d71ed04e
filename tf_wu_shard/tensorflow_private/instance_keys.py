"""Instance keys of collectives that no strategy of the process counts.

Every strategy counts its collectives from the same number on, in groups of the same keys. Where a
process makes several of them, as a notebook does, the n-th collective of one is to TensorFlow the
n-th of the other, and has to be the same op of the same type. Strategies by themselves mostly sum
floats; a sharded update has other collectives. So it counts them by itself, once in a process.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Strategies count from 100 on, and come this far after a thousand million collectives.
_FIRST = 2**30

# How many were taken, by the key of the group and the device.
_taken: collections.Counter[tuple[int, str]] = collections.Counter()
_lock = threading.Lock()


class InstanceKeys:
    """The keys of one device in one group."""

    def __init__(self, group_key: int, device: str) -> None:
        """Goes on counting where others of that device and group have stopped.

        Args:
            group_key: The group's key.
            device: The device, by its canonical name.
        """
        self._group_key = group_key
        self._device = device

    @classmethod
    def beside(cls, code: Callable[[], Any]) -> InstanceKeys:
        """The keys of the group and device that a strategy counts keys for.

        Args:
            code: What the strategy counts by, `CollectiveReplicaLauncher._next_instance_key`, or
                `following` of such keys.
        """
        counting: Any = code.__self__  # type: ignore[attr-defined]
        return cls(counting._group_key, counting._device)

    def following(self) -> Any:
        """The next key, an int32 scalar; TensorFlow asks for an input's eagerly, at each call."""
        with _lock:
            key = _FIRST + _taken[self._group_key, self._device]
            _taken[self._group_key, self._device] += 1
        with tf.device("CPU:0"):
            return tf.constant(key, tf.int32)


def num_taken() -> int:
    """How many keys this process has taken in all groups, each for a collective of one device."""
    with _lock:
        return sum(_taken.values())

"""Instance keys of collectives that no strategy of the process counts.

Every strategy counts its collectives from the same number on, in groups of the same keys. Where a
process makes several of them, as a notebook does, the n-th collective of one is to TensorFlow the
n-th of the other, and has to be the same op of the same type. Strategies by themselves mostly sum
floats; a sharded update has other collectives. So it counts them by itself, once in a process.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# Strategies count from 100 on, and come this far after a thousand million collectives.
_FIRST = 2**30

# By the key of the group and the device.
_COUNTS: dict[tuple[int, str], Iterator[int]] = collections.defaultdict(
    lambda: itertools.count(_FIRST)
)

_KEY = tf.TensorSpec([], tf.int32)


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
        """The next key, an int32 scalar; in a graph an input that is counted at each call."""
        graph: Any = tf.compat.v1.get_default_graph()
        while getattr(graph, "is_control_flow_graph", False):
            graph = graph.outer_graph
        if not tf.executing_eagerly() and graph.building_function:
            with graph.as_default():
                return graph.capture_call_time_value(self.following, _KEY)
        with tf.device("CPU:0"):
            return tf.constant(next(_COUNTS[self._group_key, self._device]), tf.int32)

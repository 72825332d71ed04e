"""Keys of collectives are counted apart from strategies', and once for all strategies."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils

from tf_wu_shard.tensorflow_private.instance_keys import InstanceKeys

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


class Counting:
    """What a strategy counts by."""

    def __init__(self, group_key: int, device: str) -> None:
        self._group_key = group_key
        self._device = device

    def _next_instance_key(self) -> int:
        return cross_device_utils.INSTANCE_KEY_START_NUMBER


def keys_of(strategy: Counting) -> InstanceKeys:
    return InstanceKeys.beside(strategy._next_instance_key)


def test_strategies_of_one_group_go_on_with_one_count() -> None:
    one, other = Counting(71, DEVICE), Counting(71, DEVICE)
    keys = [int(keys_of(strategy).following()) for strategy in (one, other, one)]
    assert keys == [keys[0], keys[0] + 1, keys[0] + 2]
    assert keys[0] >= 2**30 > cross_device_utils.INSTANCE_KEY_START_NUMBER


def test_devices_and_groups_count_by_themselves() -> None:
    first = int(keys_of(Counting(72, DEVICE)).following())
    assert int(keys_of(Counting(73, DEVICE)).following()) == first
    assert int(keys_of(Counting(72, DEVICE.replace("CPU:0", "CPU:1"))).following()) == first


def test_asked_of_such_keys_the_count_is_the_same() -> None:
    keys = keys_of(Counting(74, DEVICE))
    first = int(keys.following())
    assert int(InstanceKeys.beside(keys.following).following()) == first + 1


def test_a_loop_in_a_function_takes_a_new_key_at_each_call_of_whatever_calls_it() -> None:
    keys = keys_of(Counting(75, DEVICE))

    @tf.function(autograph=False)
    def inner() -> Any:
        graph: Any = tf.compat.v1.get_default_graph()
        key = graph.capture_call_time_value(keys.following, tf.TensorSpec([], tf.int32))
        return tf.while_loop(lambda n, last: n < 3, lambda n, last: (n + 1, key), [0, 0])[1]

    @tf.function(autograph=False)
    def outer() -> Any:
        return inner()

    first = int(inner())
    assert [int(called()) for called in (inner, outer, outer)] == [first + 1, first + 2, first + 3]

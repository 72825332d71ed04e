"""What a training script asks of a TPU, answered where there is none.

Answers: what `TPUClusterResolver`, `initialize_tpu_system`, the lists of TPU devices and
`TPUStrategy` give an unmodified script. The classes and functions stay TensorFlow's own, so that it
does not matter under which name the script took them; what is replaced is what they would ask a
real TPU.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import tpu_strategy as tf_tpu_strategy
from tensorflow.python.eager import context
from tensorflow.python.tpu import tpu_strategy_util

from tf_wu_shard.tensorflow_private.tpu_strategy import AbsentTPU

# What a resolver is asked about the TPU that it found.
_ASKED = ("cluster_spec", "get_master", "get_tpu_system_metadata", "master", "num_accelerators")


def install(
    num_devices: int,
    topology: tf.tpu.experimental.Topology,
    on_strategy: Callable[[Any], None],
) -> None:
    """Makes this process believe in a TPU, whatever name or address a script gives.

    Args:
        num_devices: How many TPU devices it is to have.
        topology: Where they sit.
        on_strategy: Called with the `extended` of every TPUStrategy, as soon as it is made.
    """
    absent = AbsentTPU(num_devices, topology)
    _resolve(absent)
    _initialize(topology)
    _list_devices(num_devices)
    _tell_strategies(on_strategy)


def _resolve(absent: AbsentTPU) -> None:
    """Every TPUClusterResolver finds the same TPU."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    parameters = inspect.signature(resolver.__init__)

    @functools.wraps(resolver.__init__)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = parameters.bind(self, *args, **kwargs).arguments
        self._tpu = given.get("tpu") or absent.tpu
        self.task_type = given.get("job_name", "worker")
        self.task_id = 0
        self._coordinator_name = given.get("coordinator_name")
        self._coordinator_address = given.get("coordinator_address")
        self._tpu_topology = absent.topology

    resolver.__init__ = __init__
    for name in _ASKED:
        setattr(resolver, name, _answered_by(absent, name))
    resolver.environment = property(lambda self: "")
    resolver.__deepcopy__ = lambda self, memo: self


def _answered_by(absent: AbsentTPU, name: str) -> Callable[..., Any]:
    def answer(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(absent, name)(*args, **kwargs)

    answer.__name__ = name
    return answer


def _initialize(topology: tf.tpu.experimental.Topology) -> None:
    """A TPU system that starts at once, and stops."""

    def initialize_tpu_system_impl(cluster_resolver: Any, *_: Any) -> Any:
        name = getattr(cluster_resolver, "_tpu", "")
        tpu_strategy_util._INITIALIZED_TPU_SYSTEMS[name] = topology
        return topology

    def shutdown_tpu_system_impl(cluster_resolver: Any, *_: Any) -> None:
        name = getattr(cluster_resolver, "_tpu", "")
        tpu_strategy_util._INITIALIZED_TPU_SYSTEMS.pop(name, None)

    tpu_strategy_util.initialize_tpu_system_impl = initialize_tpu_system_impl
    tpu_strategy_util.shutdown_tpu_system_impl = shutdown_tpu_system_impl


def _list_devices(count: int) -> None:
    """`tf.config.list_logical_devices("TPU")` and its like see the devices."""
    _listing(
        "list_logical_devices",
        [context.LogicalDevice(f"/device:TPU:{index}", "TPU") for index in range(count)],
    )
    physical = [
        context.PhysicalDevice(f"/physical_device:TPU:{index}", "TPU") for index in range(count)
    ]
    for name in ("list_physical_devices", "get_visible_devices"):
        _listing(name, physical)


def _listing(name: str, devices: list[Any]) -> None:
    original = getattr(context.Context, name)

    @functools.wraps(original)
    def listed(self: Any, device_type: str | None = None) -> Any:
        return list(devices) if device_type == "TPU" else original(self, device_type)

    setattr(context.Context, name, listed)


def _tell_strategies(on_strategy: Callable[[Any], None]) -> None:
    original = tf_tpu_strategy.TPUExtended.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        on_strategy(self)

    tf_tpu_strategy.TPUExtended.__init__ = __init__

"""What every test shares: logical CPU devices, set before anything touches TensorFlow's."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import tensorflow as tf

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# How fast a shared machine makes an example, or runs it, says nothing about the example.
settings.register_profile(
    "shared_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared_machine")

_REPLICAS = 8

# Emulated replicas want a host beside them.
_LOGICAL_CPUS = _REPLICAS + 1


def _configure_logical_cpus() -> None:
    import tensorflow as tf

    physical = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(physical) is None:
        tf.config.set_logical_device_configuration(
            physical, [tf.config.LogicalDeviceConfiguration()] * _LOGICAL_CPUS
        )


def pytest_collection_finish() -> None:
    """Cuts the CPU up as soon as a collected module has imported TensorFlow, before any test."""
    if "tensorflow" in sys.modules:
        _configure_logical_cpus()


@pytest.fixture(scope="session")
def logical_cpus() -> list[str]:
    """Names of eight logical CPU devices of this process; imports TensorFlow only when asked."""
    _configure_logical_cpus()
    return [f"/device:CPU:{index}" for index in range(_REPLICAS)]


@pytest.fixture(scope="session")
def strategy_of(logical_cpus: list[str]) -> Callable[[int], tf.distribute.MirroredStrategy]:
    """A function from a number of replicas to the one strategy this process has for it."""
    import tensorflow as tf

    made: dict[int, tf.distribute.MirroredStrategy] = {}

    def strategy(replicas: int) -> tf.distribute.MirroredStrategy:
        if replicas not in made:
            made[replicas] = tf.distribute.MirroredStrategy(logical_cpus[:replicas])
        return made[replicas]

    return strategy


@pytest.fixture(scope="session")
def emulated(
    logical_cpus: list[str],
) -> Callable[..., tf.distribute.TPUStrategy]:
    """A function from a number of replicas, at most 8, and a topology to an emulated TPUStrategy.

    For the same arguments it is the same strategy.
    """
    from tf_wu_shard.emulation import emulated_tpu_strategy

    assert logical_cpus
    return functools.cache(emulated_tpu_strategy)

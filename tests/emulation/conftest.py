"""Emulated strategies, one for each number of replicas in a process."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import tensorflow as tf

from tf_wu_shard.emulation import emulated_tpu_strategy


@pytest.fixture(scope="session")
def emulated(logical_cpus: list[str]) -> Callable[[int], tf.distribute.TPUStrategy]:
    """A function from a number of replicas, at most 8, to a strategy of as many."""
    assert logical_cpus
    return functools.cache(emulated_tpu_strategy)


@pytest.fixture(scope="session")
def four(emulated: Callable[[int], tf.distribute.TPUStrategy]) -> tf.distribute.TPUStrategy:
    """A strategy of four replicas."""
    return emulated(4)

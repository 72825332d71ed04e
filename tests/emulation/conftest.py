"""The strategy that most tests here run on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf


@pytest.fixture(scope="session")
def four(emulated: Callable[[int], tf.distribute.TPUStrategy]) -> tf.distribute.TPUStrategy:
    """A strategy of four replicas."""
    return emulated(4)

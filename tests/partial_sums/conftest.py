"""Two replicas, each flag off after every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _flags_off() -> Iterator[None]:
    import tensorflow as tf

    import tf_wu_shard
    from tf_wu_shard.partial_sums.options import FLAG

    tf_wu_shard.clear_reports()
    yield
    tf.config.optimizer.set_experimental_options({FLAG: False, "weight_update_sharding": False})


@pytest.fixture(params=["mirrored", "tpu"])
def strategy(
    request: pytest.FixtureRequest,
    strategy_of: Callable[..., Any],
    emulated: Callable[..., Any],
) -> Any:
    """Two replicas in one process, or on an emulated TPU."""
    return strategy_of(2) if request.param == "mirrored" else emulated(2)

"""The flag is off before and after every test here, and no test sees another's reports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import tensorflow as tf


def _reset() -> None:
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        import tf_wu_shard

        tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})
        tf_wu_shard.clear_reports()


@pytest.fixture(autouse=True)
def _flag_off() -> Iterator[None]:
    _reset()
    yield
    _reset()


@pytest.fixture(scope="session")
def summing_strategy_of(
    logical_cpus: list[str],
) -> Callable[[int], tf.distribute.MirroredStrategy]:
    """A function from a number of replicas to a strategy that reduces without collective ops.

    Collectives of two group sizes abort each other in one process; here those of 2 replicas run,
    and steps of more replicas sum on one device.
    """
    import tensorflow as tf

    made: dict[int, tf.distribute.MirroredStrategy] = {}

    def strategy(replicas: int) -> tf.distribute.MirroredStrategy:
        if replicas not in made:
            made[replicas] = tf.distribute.MirroredStrategy(
                logical_cpus[:replicas], tf.distribute.ReductionToOneDevice()
            )
        return made[replicas]

    return strategy

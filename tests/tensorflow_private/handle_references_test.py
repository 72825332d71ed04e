"""Every component of a distributed variable is found from its handle."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.distribute import values

from tf_wu_shard.tensorflow_private import handle_references
from tf_wu_shard.tensorflow_private.distributed_variables import (
    distributed_variable_of,
    original_handle,
)

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def test_a_component_is_found_from_its_handle(strategy_of: Strategies) -> None:
    handle_references.install()
    with strategy_of(2).scope():
        variable = tf.Variable([1.0, 2.0])
    for replica, component in enumerate(variable.values):
        found = distributed_variable_of(original_handle(component))
        assert found is not None
        assert found[0] is variable and found[1] == replica


def test_installing_twice_wraps_once() -> None:
    handle_references.install()
    hook = values.DistributedVariable.__init__
    handle_references.install()
    assert values.DistributedVariable.__init__ is hook


def test_a_variable_that_a_trace_makes_is_found(strategy_of: Strategies) -> None:
    handle_references.install()
    strategy = strategy_of(2)
    made: list[tf.Variable] = []

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with strategy.scope():
            if not made:
                made.append(tf.Variable([1.0, 2.0]))
                handles = [original_handle(c) for c in made[0].values]
                assert all(distributed_variable_of(h) is not None for h in handles)
            return made[0].values[0] * 2.0

    step()
    assert made

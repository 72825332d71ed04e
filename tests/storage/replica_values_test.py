"""Copies are compared by their bits, where there is something to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import shard
from tf_wu_shard.storage import replica_values

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def mirrored(strategy: tf.distribute.Strategy, value: Any, dtype: tf.DType = tf.float32) -> Any:
    with strategy.scope():
        return tf.Variable(tf.constant(value, dtype))


def differ(variable: Any) -> bool:
    (found,) = replica_values.which_differ([variable])
    return found


@pytest.mark.parametrize(
    ("dtype", "value", "other"),
    [
        (tf.float32, [0.0, 1.0], [-0.0, 1.0]),
        (tf.bfloat16, [1.0], [2.0]),
        (tf.bool, True, False),
        (tf.int64, [[1, 2]], [[1, 3]]),
        (tf.complex64, [1j], [2j]),
        (tf.string, ["one", "two"], ["on", "etwo"]),
    ],
)
def test_a_bit_makes_copies_differ(
    strategy_of: Strategies, dtype: tf.DType, value: Any, other: Any
) -> None:
    variable = mirrored(strategy_of(3), value, dtype)
    alike = mirrored(strategy_of(3), value, dtype)
    assert not differ(variable)
    before = replica_values.digest([variable, alike])
    variable.values[2].assign(tf.constant(other, dtype))
    assert replica_values.which_differ([variable, alike]) == [True, False]
    # The first copy stands for a process.
    assert replica_values.digest([variable, alike]) == before
    variable.values[0].assign(tf.constant(other, dtype))
    assert replica_values.digest([variable, alike]) != before


def test_copies_that_were_written_one_by_one_do_not_differ(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), np.arange(1 << 17))
    for component in variable.values:
        component.assign_add(tf.ones(1 << 17))
    assert not differ(variable)
    variable.values[1][-1:].assign([np.nan])
    assert differ(variable)
    variable.values[0][-1:].assign([np.nan])
    assert not differ(variable)


def test_copies_of_other_shapes_differ_though_their_bits_do_not(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    with strategy.scope():
        variable = tf.Variable(tf.ones((3, 2)), shape=tf.TensorShape((None, None)))
    before = replica_values.digest([variable])
    variable.values[1].assign(tf.ones((2, 3)))
    assert differ(variable) and replica_values.digest([variable]) == before
    variable.values[0].assign(tf.ones((2, 3)))
    assert not differ(variable) and replica_values.digest([variable]) != before


def test_of_what_holds_nothing_there_is_nothing_to_compare(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    slot = mirrored(strategy, np.ones(8))
    shard(slot)
    made: list[Any] = []

    @tf.function
    def making() -> None:
        if not made:
            with strategy.scope():
                made.append(tf.Variable(tf.ones(4)))
            made.append(differ(made[0]))

    making()
    single = tf.Variable(1.0)
    nothing = replica_values.digest([])
    for variable in (slot, single):
        assert not differ(variable)
        assert replica_values.digest([variable]) == nothing
    assert made[1] is False

"""Copies of a sharded slot, and gradients with respect to one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, shard, sharded, values_of

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

_SHAPE = (7, 6)


def _pair(strategy: tf.distribute.Strategy) -> tuple[tf.Variable, tf.Variable]:
    return mirrored(strategy, values_of(_SHAPE)), sharded(strategy, values_of(_SHAPE))


@pytest.mark.parametrize("replica", range(4))
def test_a_gradient_flows_to_a_component(strategy_of: Strategies, replica: int) -> None:
    with strategy_of(4).scope():
        variable = tf.Variable(values_of(_SHAPE))
    shard(variable)
    component = variable.values[replica]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(component * component)
    np.testing.assert_array_equal(tape.gradient(loss, component), 2.0 * component.numpy())


def test_an_explicitly_watched_component_gets_a_gradient(strategy_of: Strategies) -> None:
    slot = sharded(strategy_of(4), values_of(_SHAPE))
    component = slot.values[1]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(component)
        loss = tf.reduce_sum(component * 3.0)
    np.testing.assert_array_equal(tape.gradient(loss, component), np.full(_SHAPE, 3.0, np.float32))


def test_a_deep_copy_is_an_ordinary_variable_of_the_same_value(strategy_of: Strategies) -> None:
    strategy = strategy_of(4)
    plain, slot = _pair(strategy)
    with strategy.scope():
        copied, reference = copy.deepcopy(slot), copy.deepcopy(plain)
    assert type(copied) is type(reference)
    assert [type(v) for v in copied.values] == [type(v) for v in reference.values]
    slot.assign_add(values_of(_SHAPE, seed=1))
    np.testing.assert_array_equal(
        [v.numpy() for v in copied.values], [v.numpy() for v in reference.values]
    )


def test_a_component_pickles_no_better_and_no_worse_than_unsharded(
    strategy_of: Strategies,
) -> None:
    messages = []
    for variable in _pair(strategy_of(4)):
        with pytest.raises(TypeError) as caught:
            pickle.dumps(variable.values[2])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_component_pickles_by_value(strategy_of: Strategies) -> None:
    slot = sharded(strategy_of(4), values_of(_SHAPE))
    make, arguments = slot.values[2].__reduce__()
    np.testing.assert_array_equal(make.keywords["initial_value"], values_of(_SHAPE))
    assert arguments == ()

"""Variables that each replica has beside one of the model's: zeros at first, the same for ever."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tf_wu_shard.storage import own_variables

Strategies = Callable[[int], tf.distribute.Strategy]


def variable(strategy: tf.distribute.Strategy) -> tf.Variable:
    with strategy.scope():
        return tf.Variable(tf.ones((3, 2)), name="weight")


def test_each_replica_has_zeros_of_the_variables_shape_on_its_device(
    strategy_of: Strategies,
) -> None:
    weight = variable(strategy_of(2))
    own = own_variables.beside(weight, "pass")
    assert [v.numpy().tolist() for v in own.values()] == [np.zeros((3, 2)).tolist()] * 2
    assert [h.device for h in own.handles] == [v.device for v in weight.values]


def test_a_name_stands_for_the_same_ones_and_another_for_others(strategy_of: Strategies) -> None:
    weight = variable(strategy_of(2))
    own = own_variables.beside(weight, "pass")
    assert own_variables.beside(weight, "pass") is own
    assert own_variables.beside(weight, "other") is not own
    assert own_variables.beside(variable(strategy_of(2)), "pass") is not own


def test_they_go_with_their_variable(strategy_of: Strategies) -> None:
    weight = variable(strategy_of(2))
    gone = weakref.ref(own_variables.beside(weight, "pass"))
    del weight
    gc.collect()
    assert gone() is None

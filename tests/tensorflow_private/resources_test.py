from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private.resources import (
    Shard,
    bits,
    free,
    refill,
    same_bits,
    values_of,
)

_NAN = float("nan")


def test_a_shard_knows_no_strategy_and_no_function(logical_cpus: list[str]) -> None:
    strategy = tf.distribute.MirroredStrategy(logical_cpus[:2])
    made: list[Shard] = []

    def trace() -> None:
        with strategy.scope():
            made.append(Shard([2], tf.float32, logical_cpus[1]))

    graph = tf.function(trace).get_concrete_function().graph
    assert graph.get_operations() == []
    (shard,) = made
    assert shard.device.endswith("CPU:1")
    shard.assign(tf.constant([1.0, 2.0]))
    shard.assign_add(tf.constant([3.0, 4.0]))
    shard.assign_sub(tf.constant([0.5, 0.5]))
    assert shard.value().numpy().tolist() == [3.5, 5.5]
    assert shard.value().device.endswith("CPU:1")


def test_every_shard_is_a_resource_of_its_own(logical_cpus: list[str]) -> None:
    first, second = (Shard([1], tf.int64, logical_cpus[0]) for _ in range(2))
    first.assign(tf.constant([1], tf.int64))
    second.assign(tf.constant([2], tf.int64))
    assert first.value().numpy().tolist() == [1]


def test_a_shards_shape_is_known_where_its_handle_is_captured(logical_cpus: list[str]) -> None:
    shard = Shard([2], tf.float32, logical_cpus[0])
    shard.assign(tf.constant([1.0, 2.0]))
    double = tf.function(lambda: shard.value() * 2).get_concrete_function()
    assert double.outputs[0].shape == (2,)
    assert double().numpy().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.complex64, tf.int32, tf.bool])
def test_a_freed_resource_holds_one_element_that_cannot_be_fetched(dtype: tf.DType) -> None:
    variable = tf.Variable(tf.cast([1, 0, 1], dtype))
    free([variable.handle], dtype)
    left = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=dtype)
    assert tf.size(left).numpy() == 1
    with pytest.raises(tf.errors.InvalidArgumentError):
        left.numpy()


def test_a_freed_vector_does_not_sum_to_zero_in_a_function_that_still_reads_it() -> None:
    variable = tf.Variable([1.0, 2.0])
    total = tf.function(lambda: tf.reduce_sum(variable))
    assert total().numpy() == 3.0
    free([variable.handle], tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError):
        total().numpy()


def test_a_freed_resource_can_be_filled_again() -> None:
    variable = tf.Variable([1.0, 2.0])
    free([variable.handle], tf.float32)
    refill([variable.handle], [tf.constant([3.0, 4.0])])
    assert variable.numpy().tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (np.array([1, _NAN], np.float32), np.array([1, _NAN], np.float32), True),
        (np.array([0.0]), np.array([-0.0]), False),
        (np.array(2.0), np.array(2.0), True),
        (np.array(2.0), np.array(3.0), False),
        (np.zeros(0, np.float32), np.zeros(0, np.float32), True),
        (np.array([[1, 2]]), np.array([[1, 3]]), False),
    ],
)
def test_bits_are_compared_not_values(first: np.ndarray, second: np.ndarray, same: bool) -> None:
    assert same_bits(tf.constant(first), tf.constant(second)) is same


def test_what_variables_hold_is_read_from_where_each_lives(logical_cpus: list[str]) -> None:
    made = []
    for number, device in enumerate(logical_cpus[:2]):
        made.append(Shard((2,), tf.float32, device))
        refill([made[-1].handle], [tf.fill((2,), float(number))])
    found = values_of([one.handle for one in made], tf.float32)
    assert [value.numpy().tolist() for value in found] == [[0.0, 0.0], [1.0, 1.0]]
    assert [value.device for value in found] == [one.device for one in made]
    assert bits(found[1]).tobytes() == np.ones(2, np.float32).tobytes()

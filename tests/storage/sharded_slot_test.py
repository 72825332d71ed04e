from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import memory_of, mirrored, shard, values_of
from tf_wu_shard.errors import StorageError
from tf_wu_shard.storage import shardable
from tf_wu_shard.storage.sharded_slot import sharded_slot_of, unshard

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

_SHAPE = (50, 7)


def _stored(handle: tf.Tensor, dtype: tf.DType = tf.float32) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def test_identity_name_shape_and_dtype_stay(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE), name="momentum")
    components = variable.values
    slot = shard(variable)
    assert slot.variable is variable
    assert variable.values is components
    assert isinstance(variable, tf.Variable)
    assert all(isinstance(component, tf.Variable) for component in components)
    assert variable.name == "momentum:0"
    assert components[2].name == "momentum/replica_2:0"
    assert (variable.shape, variable.dtype) == (_SHAPE, tf.float32)


def test_storage_is_one_shard_per_replica(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(8), values_of((1000, 33)))
    handles = [component.handle for component in variable.values]
    slot = shard(variable)
    held = sum(int(tf.size(one.value())) for one in slot.shards)
    assert held == 33000
    assert max(int(tf.size(one.value())) for one in slot.shards) <= 33000 / 8 + 16
    assert all(tf.size(_stored(handle)).numpy() == 1 for handle in handles)


def test_shards_of_equal_zeros_share_no_memory(strategy_of: Strategies) -> None:
    slot = shard(mirrored(strategy_of(4), tf.zeros(4096)))
    buffers = [memory_of(one.value()) for one in slot.shards]
    for index, buffer in enumerate(buffers):
        assert not any(np.shares_memory(buffer, other) for other in buffers[:index])


def test_an_assigned_value_is_not_kept_alive_by_its_shards(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(4), tf.zeros(4096))
    slot = shard(variable)
    value = tf.constant(values_of((4096,)))
    whole = memory_of(value)
    variable.assign(value)
    assert not any(np.shares_memory(memory_of(one.value()), whole) for one in slot.shards)


def test_a_slot_is_found_by_the_original_handles_only(strategy_of: Strategies) -> None:
    variable, other = (mirrored(strategy_of(2), values_of(_SHAPE)) for _ in range(2))
    handles = [component.handle for component in variable.values]
    slot = shard(variable)
    assert [sharded_slot_of(handle) for handle in handles] == [slot, slot]
    assert sharded_slot_of(other.values[0].handle) is None
    assert sharded_slot_of(slot.handles[0]) is None
    assert sharded_slot_of(tf.Variable(1.0).handle) is None
    assert sharded_slot_of(tf.constant(1.0)) is None


def test_shards_die_with_the_variable_at_once(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE))
    slot = shard(variable)
    alive = [weakref.ref(one) for one in slot.shards]
    gc.disable()
    try:
        del variable
        with pytest.raises(StorageError, match="no longer exists"):
            _ = slot.variable
        del slot
        assert [one() for one in alive] == [None] * 4
    finally:
        gc.enable()


def test_a_component_outlives_its_variable_whole(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE))
    shard(variable)
    component = variable.values[1]
    del variable
    gc.collect()
    component.assign_add(tf.ones(_SHAPE))
    np.testing.assert_array_equal(component.numpy(), values_of(_SHAPE) + 1)


def test_eager_ops_refuse_the_handle_with_a_remedy(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), values_of(_SHAPE), name="momentum")
    shard(variable)
    handle = variable.values[0].handle
    for use in (
        lambda: tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32),
        lambda: tf.raw_ops.AssignVariableOp(resource=handle, value=tf.zeros(_SHAPE)),
        lambda: tf.raw_ops.ResourceGather(resource=handle, indices=[0], dtype=tf.float32),
        lambda: tf.identity(handle),
    ):
        with pytest.raises(StorageError, match=r"momentum.*use the variable's own methods"):
            use()


def test_a_handle_taken_before_yields_no_value(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), values_of((8,)))
    handle = variable.values[0].handle
    shard(variable)
    with pytest.raises(tf.errors.InvalidArgumentError):
        _stored(handle).numpy()
    assert np.isnan(tf.reduce_sum(_stored(handle)).numpy())


def test_unsharding_restores_everything(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE))
    handles = [component.handle for component in variable.values]
    kinds = [type(one) for one in (variable, *variable.values)]
    attributes = [set(vars(one)) for one in variable.values]
    slot = shard(variable)
    variable.assign(values_of(_SHAPE, seed=1))
    unshard(slot)
    assert [type(one) for one in (variable, *variable.values)] == kinds
    assert [set(vars(one)) for one in variable.values] == attributes
    for component, handle in zip(variable.values, handles, strict=True):
        assert component.handle is handle
        np.testing.assert_array_equal(_stored(handle), values_of(_SHAPE, seed=1))
    variable.assign_add(tf.ones(_SHAPE))
    np.testing.assert_array_equal(variable.numpy(), values_of(_SHAPE, seed=1) + 1)
    assert sharded_slot_of(handles[0]) is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        slot.shards[0].value().numpy()
    with pytest.raises(StorageError, match="not stored in this slot any more"):
        unshard(slot)


def test_a_function_on_the_shards_fails_after_unsharding_instead_of_reading_them(
    strategy_of: Strategies,
) -> None:
    variable = mirrored(strategy_of(2), values_of((40,)))
    slot = shard(variable)
    shards = [one.value for one in slot.shards]
    total = tf.function(lambda: tf.reduce_sum(tf.concat([read() for read in shards], 0)))
    assert total().numpy() == values_of((40,)).sum()
    unshard(slot)
    with pytest.raises(tf.errors.InvalidArgumentError):
        total().numpy()


def test_a_variable_can_be_sharded_again_after_unsharding(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE))
    unshard(shard(variable))
    slot = shard(variable)
    assert sharded_slot_of(slot.variable.values[0].handle.original) is slot
    np.testing.assert_array_equal(variable.numpy(), values_of(_SHAPE))


def test_a_variable_made_while_its_function_is_traced_waits_for_its_value(
    strategy_of: Strategies,
) -> None:
    strategy, value = strategy_of(2), values_of(_SHAPE)
    made: list[tf.Variable] = []
    seen: list[bool] = []

    @tf.function
    def step() -> tf.Tensor:
        if not made:
            made.append(mirrored(strategy, value))
        seen.append(shardable.against_shards(made[0]) is None)
        return made[0].read_value()

    step()
    assert not seen[0]
    slot = shard(made[0])
    made[0].assign_add(tf.ones(_SHAPE))
    np.testing.assert_array_equal(made[0].numpy(), values_of(_SHAPE) + 1)
    unshard(slot)
    np.testing.assert_array_equal(made[0].values[1].numpy(), values_of(_SHAPE) + 1)

"""Shards that are prepared change nothing until they are committed, all of them or none."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, values_of
from tf_wu_shard.errors import StorageError
from tf_wu_shard.layout import flat_layout
from tf_wu_shard.storage.pending_slots import commit_all, prepare
from tf_wu_shard.storage.sharded_slot import sharded_slot_of

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

_SHAPE = (50, 7)


def test_preparing_changes_nothing_that_the_user_can_see(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE))
    handles = [component.handle for component in variable.values]
    kinds = [type(one) for one in (variable, *variable.values)]
    pending = prepare(variable, flat_layout(_SHAPE, 4, 4))
    assert [type(one) for one in (variable, *variable.values)] == kinds
    assert all(one.handle is handle for one, handle in zip(variable.values, handles, strict=True))
    assert all(sharded_slot_of(handle) is None for handle in handles)
    np.testing.assert_array_equal(variable.values[3].numpy(), values_of(_SHAPE))
    alive = weakref.ref(pending.shards[0])
    del pending
    assert alive() is None


def test_each_shard_holds_its_part_and_lies_on_its_replicas_device(
    strategy_of: Strategies,
) -> None:
    variable = mirrored(strategy_of(4), values_of(_SHAPE))
    layout = flat_layout(_SHAPE, 4, 4)
    slot = prepare(variable, layout).commit()
    for replica, one in enumerate(slot.shards):
        start, stop = layout.bounds(replica)
        own = values_of(_SHAPE).reshape(-1)[start:stop]
        np.testing.assert_array_equal(one.value(), own)
        assert one.device == variable.values[replica].device
        assert slot.handles[replica] is one.handle


def test_two_prepared_for_one_variable_the_second_commit_is_refused(
    strategy_of: Strategies,
) -> None:
    variable = mirrored(strategy_of(2), values_of(_SHAPE))
    first, second = (prepare(variable, flat_layout(_SHAPE, 2, 4)) for _ in range(2))
    slot = first.commit()
    with pytest.raises(StorageError, match="not an unsharded mirrored variable"):
        second.commit()
    assert sharded_slot_of(variable.values[0].handle.original) is slot
    np.testing.assert_array_equal(variable.numpy(), values_of(_SHAPE))


def test_of_several_none_is_committed_where_one_cannot_be(strategy_of: Strategies) -> None:
    one, other = (mirrored(strategy_of(2), values_of(_SHAPE, seed=seed)) for seed in range(2))
    layout = flat_layout(_SHAPE, 2, 4)
    pending = [prepare(variable, layout) for variable in (one, other)]
    slot = prepare(other, layout).commit()
    with pytest.raises(StorageError, match="not an unsharded mirrored variable"):
        commit_all(pending)
    assert sharded_slot_of(one.values[0].handle) is None
    assert sharded_slot_of(other.values[0].handle.original) is slot
    commit_all(pending[:1])
    assert sharded_slot_of(one.values[0].handle.original) is not None
    for seed, variable in enumerate((one, other)):
        np.testing.assert_array_equal(variable.numpy(), values_of(_SHAPE, seed=seed))

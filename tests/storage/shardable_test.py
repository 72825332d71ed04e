"""A variable that cannot be kept in shards is refused, and its reason is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, shard, values_of
from tf_wu_shard.errors import StorageError
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.storage import shardable
from tf_wu_shard.storage.pending_slots import prepare

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

_SHAPE = (50, 7)


def test_a_variable_that_cannot_be_sharded_is_refused_with_its_reason(
    strategy_of: Strategies,
) -> None:
    strategy = strategy_of(2)
    variable = mirrored(strategy, values_of(_SHAPE))
    on_read = mirrored(
        strategy,
        1.0,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    text = mirrored(strategy, "text")
    done = mirrored(strategy, values_of(_SHAPE))
    shard(done)
    layout = flat_layout(_SHAPE, 2, 4)
    for one, cut, reason in (
        (tf.Variable(1.0), Layout((), 2, 16), "ResourceVariable, not an unsharded mirrored"),
        (on_read, Layout((), 2, 16), "SyncOnReadVariable, not an unsharded mirrored"),
        (done, layout, "not an unsharded mirrored variable"),
        (variable, flat_layout(_SHAPE, 4, 4), "2 components for 4 shards"),
        (variable, flat_layout((7, 50), 2, 4), "is not the layout's"),
        (text, Layout((), 2, 16), "dtype string"),
    ):
        with pytest.raises(StorageError, match=reason):
            prepare(one, cut)
    assert None not in [
        shardable.against_shards(one) for one in (tf.Variable(1.0), on_read, done, text)
    ]
    assert shardable.against_shards(variable) is None


def test_a_variable_of_unknown_shape_is_refused(strategy_of: Strategies) -> None:
    growing = mirrored(strategy_of(2), tf.zeros((1, 2)), shape=(None, 2))
    with pytest.raises(StorageError, match="not fully known"):
        prepare(growing, flat_layout((1, 2), 2, 4))
    assert shardable.against_shards(growing) is not None

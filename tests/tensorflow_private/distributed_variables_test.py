from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, shard
from tf_wu_shard.tensorflow_private.distributed_variables import (
    active_replica,
    distributed_variable_of,
    is_traced_function,
    original_handle,
    runs_eagerly,
)

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


@pytest.mark.parametrize("shards", [True, False])
def test_a_handle_leads_to_its_mirrored_variable_and_replica(
    strategy_of: Strategies, shards: bool
) -> None:
    variable = mirrored(strategy_of(4), tf.zeros(100))
    handles = [component.handle for component in variable.values]
    if shards:
        shard(variable)
    for replica, handle in enumerate(handles):
        found = distributed_variable_of(handle)
        assert found is not None
        assert found[0] is variable
        assert found[1] == replica
        assert original_handle(variable.values[replica]) is handle


def test_handles_of_anything_else_lead_nowhere(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    on_read = mirrored(
        strategy,
        1.0,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    slot = shard(variable := mirrored(strategy, tf.zeros(100)))
    for handle in (
        tf.Variable(1.0).handle,
        on_read.values[0].handle,
        slot.handles[0],
        tf.constant(1.0),
        None,
    ):
        assert distributed_variable_of(handle) is None
    assert variable.shape == (100,)


def test_a_handle_whose_variable_is_gone_leads_nowhere(strategy_of: Strategies) -> None:
    variable = mirrored(strategy_of(2), tf.zeros(3))
    handle = variable.values[0].handle
    del variable
    gc.collect()
    assert distributed_variable_of(handle) is None


def test_the_active_replica_is_known_in_replicas_and_updates_only(strategy_of: Strategies) -> None:
    strategy, other = strategy_of(2), strategy_of(4)
    variable = mirrored(strategy, tf.zeros(3))
    assert active_replica(strategy) is None
    with strategy.scope():
        assert active_replica(strategy) is None
    in_run: list[int | None] = []
    strategy.run(lambda: in_run.append(active_replica(strategy)))
    assert sorted(in_run, key=str) == [0, 1]
    updated: list[int | None] = []
    strategy.extended.update(
        variable, lambda component: updated.append(active_replica(strategy)), group=False
    )
    assert updated == [0, 1]
    foreign: list[int | None] = []
    strategy.run(lambda: foreign.append(active_replica(other)))
    assert foreign == [None, None]


def test_modes_are_told_apart() -> None:
    seen = []

    def note() -> None:
        seen.append((runs_eagerly(), is_traced_function()))
        with tf.init_scope():
            seen.append((runs_eagerly(), is_traced_function()))

    tf.function(note).get_concrete_function()
    with tf.Graph().as_default():
        seen.append((runs_eagerly(), is_traced_function()))
    assert seen == [(False, True), (True, False), (False, False)]

"""A variable in shards changes its class and back, and is written once as a whole from outside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute import values

from tests.storage.slots import mirrored
from tests.tensorflow_private.storages import Storage, sharded
from tf_wu_shard.tensorflow_private.closed_handles import ClosedHandle
from tf_wu_shard.tensorflow_private.sharded_variables import (
    become_plain,
    become_sharded,
    can_be_sharded,
    is_in_shards,
    is_plain_component,
)

Strategies = Callable[[int], Any]

VALUE = np.array([1.0, 2.0, 4.0], np.float32)


@pytest.fixture
def variable(strategy_of: Strategies) -> Any:
    return sharded(strategy_of(2), VALUE)


def done(variable: Any) -> list[tuple[str, int | None]]:
    """What reached the storage."""
    storage = variable.values[0]._storage
    assert isinstance(storage, Storage)
    return storage.done


def test_mirrored_variables_can_be_sharded_once_and_others_cannot(
    strategy_of: Strategies, variable: Any
) -> None:
    strategy = strategy_of(2)
    plain, own = mirrored(strategy, VALUE), tf.Variable(VALUE)
    on_read = mirrored(strategy, VALUE, synchronization=tf.VariableSynchronization.ON_READ)
    assert can_be_sharded(plain) and is_plain_component(plain.values[1])
    assert is_plain_component(own)
    assert not any(map(can_be_sharded, (variable, own, on_read)))
    assert not is_plain_component(variable.values[1])


def test_becoming_plain_undoes_all_of_becoming_sharded(strategy_of: Strategies) -> None:
    variable: Any = mirrored(strategy_of(2), VALUE)
    parts = (variable, *variable.values)
    before = [(type(part), {*vars(part)}) for part in parts]
    handles = [component.handle for component in variable.values]
    assert not any(map(is_in_shards, handles))
    become_sharded(variable, Storage(VALUE))
    assert all(map(is_in_shards, handles)) and not is_in_shards(tf.Variable(1.0).handle)
    assert all(type(part) is not kind for part, (kind, _) in zip(parts, before, strict=True))
    assert all(isinstance(component.handle, ClosedHandle) for component in variable.values)
    become_plain(variable)
    assert [(type(part), {*vars(part)}) for part in parts] == before
    np.testing.assert_array_equal(variable.values[1].numpy(), VALUE)


@pytest.mark.parametrize("method", ["assign", "assign_add", "assign_sub"])
def test_a_write_from_outside_the_replicas_is_one_of_the_whole(variable: Any, method: str) -> None:
    getattr(variable, method)(VALUE)
    assert [what for what in done(variable) if what[0] != "read"] == [(method, None)]
    wanted = {"assign": VALUE, "assign_add": 2 * VALUE, "assign_sub": 0 * VALUE}[method]
    np.testing.assert_array_equal(variable.numpy(), wanted)


def test_a_restore_is_one_write_of_the_whole_for_all_components(variable: Any) -> None:
    (saveable,) = variable._gather_saveables_for_checkpoint().values()
    saveable("weight").restore([tf.constant(3 * VALUE)], None)
    assert done(variable) == [("assign", None)]
    np.testing.assert_array_equal(variable.values[1].numpy(), 3 * VALUE)


def test_each_replicas_own_value_is_written_by_that_replica(
    strategy_of: Strategies, variable: Any
) -> None:
    own = values.PerReplica((tf.constant(VALUE), tf.constant(2 * VALUE)))
    with strategy_of(2).scope():
        variable.assign(own)
    assert [what for what in done(variable) if what[0] == "assign"] == [
        ("assign", 0),
        ("assign", 1),
    ]


def test_it_calls_itself_what_it_was_and_a_copy_is_whole(variable: Any) -> None:
    assert repr(variable).startswith("MirroredVariable:") and "Sharded" not in str(variable)
    copied = copy.deepcopy(variable)
    assert type(copied) is values.MirroredVariable

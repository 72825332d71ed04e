"""A TPU variable in shards of rows answers eager code and checkpoints as it did whole."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as draw

from tests.emulation.replicas import run
from tests.storage.slots import values_of
from tf_wu_shard.layout import TileLayout, tile_layout
from tf_wu_shard.storage import pending_slots, shardable, sharded_slot
from tf_wu_shard.storage.parts import cut, cut_all, join
from tf_wu_shard.storage.sharded_slot import ShardedSlot, sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

SHAPES: list[tuple[int, ...]] = [
    *((40, 6), (129, 257), (1, 300), (3, 3, 16, 200), (40, 6, 16), (7, 5), (2, 3, 4, 5, 6)),
    *((20_001,), (1000, 37), (3, 3, 64, 64), (7, 5000), (3,), ()),
]
TORUSES = [(1,), (2,), (4,), (8,), (2, 4), (4, 4), (16, 16), (4, 4, 4)]
HELD = {2: (1, 0), 4: (2, 0, 3, 1)}
VALUE = np.arange(40 * 6 * 16, dtype=np.float32).reshape(40, 6, 16)


@pytest.fixture
def four(emulated: Callable[..., tf.distribute.TPUStrategy]) -> tf.distribute.TPUStrategy:
    """A strategy of four replicas."""
    return emulated(4)


def sharded(strategy: tf.distribute.Strategy, value: np.ndarray) -> tuple[Any, ShardedSlot]:
    """A variable in shards, and the slot that it lives in."""
    with strategy.scope():
        variable = tf.Variable(value)
    pending = pending_slots.prepare(variable, tile_layout(value.shape, (4,), HELD[4]))
    return variable, pending.commit()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("replicas", HELD)
def test_joining_the_cut_rows_gives_the_value(shape: tuple[int, ...], replicas: int) -> None:
    layout = tile_layout(shape, (replicas,), HELD[replicas])
    value = tf.constant(values_of(shape))
    shards = cut_all(value, layout)
    assert {tuple(shard.shape) for shard in shards} == {layout.shard_shape(0)}
    np.testing.assert_array_equal(join(shards, layout), value)
    for replica, shard in enumerate(shards):
        np.testing.assert_array_equal(cut(value, layout, replica), shard)


def test_each_replica_holds_the_run_that_the_layout_says() -> None:
    layout = TileLayout((32, 2), (0, 1), 4, 8, (2, 0, 3, 1))
    value = np.arange(64, dtype=np.float32).reshape(32, 2)
    shards = cut_all(tf.constant(value), layout)
    for shard, number in zip(shards, layout.held, strict=True):
        np.testing.assert_array_equal(shard, value[8 * number : 8 * number + 8])


@given(
    draw.lists(draw.integers(1, 40), max_size=4).map(tuple),
    draw.sampled_from(TORUSES),
    draw.randoms(use_true_random=False),
)
@settings(max_examples=60)
def test_joining_the_cuts_gives_the_value_whatever_the_padding_holds(
    shape: tuple[int, ...], torus: tuple[int, ...], random: Random
) -> None:
    held = list(range(math.prod(torus)))
    random.shuffle(held)
    layout = tile_layout(shape, torus, tuple(held))
    value = values_of(shape)
    shards = cut_all(tf.constant(value), layout)
    assert {tuple(shard.shape) for shard in shards} == {layout.shard_shape(0)}
    holds = cut_all(tf.ones(shape, tf.bool), layout)
    assert sum(int(np.sum(own)) for own in holds) == layout.size
    soiled = [tf.where(own, shard, np.nan) for own, shard in zip(holds, shards, strict=True)]
    np.testing.assert_array_equal(join(soiled, layout), value)


def test_the_shards_lie_on_the_replicas_behind_one_packed_handle(
    four: tf.distribute.TPUStrategy,
) -> None:
    variable, slot = sharded(four, VALUE)
    assert [s.device for s in slot.shards] == [component.device for component in variable.values]
    assert slot.packed_handle.is_packed
    assert sharded_slot_of(original_handle(variable.values[0])) is slot


def test_eager_code_reads_the_whole_value(four: tf.distribute.TPUStrategy) -> None:
    variable, _ = sharded(four, VALUE)
    for read in (variable, variable.read_value(), variable.value(), tf.identity(variable)):
        np.testing.assert_array_equal(read, VALUE)
    np.testing.assert_array_equal(variable[3:5], VALUE[3:5])
    np.testing.assert_array_equal(tf.gather(variable, [7, 0]), VALUE[[7, 0]])
    with four.scope():
        np.testing.assert_array_equal(variable + 1, VALUE + 1)
    for component in variable.values:
        np.testing.assert_array_equal(component.numpy(), VALUE)


@pytest.mark.parametrize(
    ("method", "expected"),
    [("assign", 2 * VALUE), ("assign_add", 3 * VALUE), ("assign_sub", -VALUE)],
)
def test_eager_writes_reach_every_shard(
    four: tf.distribute.TPUStrategy, method: str, expected: np.ndarray
) -> None:
    variable, slot = sharded(four, VALUE)
    getattr(variable, method)(2 * VALUE)
    np.testing.assert_array_equal(variable.numpy(), expected)
    np.testing.assert_array_equal(slot.read(), expected)


def test_a_checkpoint_holds_the_whole_value_and_is_restored_either_way(
    four: tf.distribute.TPUStrategy, tmp_path: pathlib.Path
) -> None:
    variable, _ = sharded(four, VALUE)
    path = tf.train.Checkpoint(v=variable).save(str(tmp_path / "c"))
    saved = tf.train.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE")
    np.testing.assert_array_equal(saved, VALUE)
    variable.assign(0 * VALUE)
    tf.train.Checkpoint(v=variable).restore(path).assert_consumed()
    np.testing.assert_array_equal(variable.numpy(), VALUE)
    plain = tf.Variable(0 * VALUE)
    tf.train.Checkpoint(v=plain).restore(path)
    np.testing.assert_array_equal(plain.numpy(), VALUE)


def test_unsharding_gives_every_replica_the_whole_value_back(
    four: tf.distribute.TPUStrategy,
) -> None:
    variable, slot = sharded(four, VALUE)
    variable.assign(VALUE + 1)
    sharded_slot.unshard(slot)
    assert sharded_slot_of(original_handle(variable.values[0])) is None
    for component in variable.values:
        np.testing.assert_array_equal(component.numpy(), VALUE + 1)
    # So does a program that the replicas run.
    for whole in run(four, lambda: tf.identity(variable)):
        np.testing.assert_array_equal(whole, VALUE + 1)


def test_a_variable_whose_replicas_differ_is_refused(four: tf.distribute.TPUStrategy) -> None:
    with four.scope():
        variable = tf.Variable(VALUE, synchronization=tf.VariableSynchronization.ON_READ)
    assert shardable.against_shards(variable) is not None

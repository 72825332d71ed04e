"""What a function captured of variables in shards is told by its handles, one by one or packed."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.storage.slots import mirrored, shard, values_of
from tf_wu_shard.layout import tile_layout
from tf_wu_shard.storage import pending_slots
from tf_wu_shard.storage.captured_slots import (
    captured_shards,
    slots_in_shards,
    slots_of_callees,
    slots_on_host,
    uses_shards_on_tpus,
)
from tf_wu_shard.storage.sharded_slot import ShardedSlot
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle
from tf_wu_shard.tensorflow_private.tpu_graph import packed_handle

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def capturing(*handles: Any) -> tuple[Any, list[str]]:
    """A function that captured handles, and the names of their placeholders."""
    graph = tf.function(lambda: None).get_concrete_function().graph
    return graph, [graph.capture(handle).op.name for handle in handles]


@pytest.fixture
def on_tpus(emulated: Callable[[int], tf.distribute.TPUStrategy]) -> tuple[Any, ShardedSlot]:
    """A variable of a TPUStrategy of two replicas, and its shards."""
    strategy = emulated(2)
    with strategy.scope():
        variable = tf.Variable(values_of((16, 128)))
    layout = tile_layout((16, 128), (2,), (0, 1))
    return variable, pending_slots.prepare(variable, layout).commit()


def test_variables_in_shards_are_told_from_whole_ones_by_key(strategy_of: Strategies) -> None:
    whole, cut = (mirrored(strategy_of(2), values_of((40,))) for _ in range(2))
    slot = shard(cut)
    captured: Any = types.SimpleNamespace(variables={"whole": whole, "cut": cut})
    assert slots_in_shards(captured) == {"cut": slot}


def test_shards_that_a_redirected_callee_takes_are_found_by_placeholder(
    strategy_of: Strategies,
) -> None:
    known, other = (mirrored(strategy_of(2), values_of((40,))) for _ in range(2))
    slot, unknown = shard(known), shard(other)
    graph, (first, _, second) = capturing(slot.handles[1], unknown.handles[0], slot.handles[0])
    assert captured_shards(graph, {"m": slot}) == {first: "m", second: "m"}
    assert not uses_shards_on_tpus(graph)


def test_on_tpus_all_shards_may_be_captured_as_one(on_tpus: tuple[Any, ShardedSlot]) -> None:
    variable, slot = on_tpus
    graph, names = capturing(slot.packed_handle, slot.handles[1])
    assert captured_shards(graph, {"m": slot}) == dict.fromkeys(names, "m")
    assert captured_shards(graph, {}) == {} and variable.shape == (16, 128)


def test_shards_that_callees_take_in_two_ways_are_told(on_tpus: tuple[Any, ShardedSlot]) -> None:
    variable, slot = on_tpus
    for handles, in_two_ways in (
        ((slot.packed_handle,), False),
        (slot.handles, False),
        ((slot.handles[0], slot.packed_handle), True),
    ):
        graph, _ = capturing(*handles)
        assert slots_of_callees(graph) == ([slot] if in_two_ways else [])
        assert uses_shards_on_tpus(graph) is in_two_ways
    assert variable.values


def test_the_host_has_the_whole_of_a_variable_or_one_replicas_component(
    on_tpus: tuple[Any, ShardedSlot], strategy_of: Strategies
) -> None:
    variable, slot = on_tpus
    on_cpus = mirrored(strategy_of(2), values_of((40,)))
    shard(on_cpus)
    graph, (whole, component, _, _) = capturing(
        packed_handle(variable),
        original_handle(variable.values[1]),
        original_handle(on_cpus.values[0]),
        slot.handles[0],
    )
    found = slots_on_host(graph)
    assert found.slots == {whole: slot, component: slot}
    assert found.components == {component}
    assert uses_shards_on_tpus(graph)

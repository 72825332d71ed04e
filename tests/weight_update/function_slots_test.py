"""What a traced function's slots may do is read off its graph and off who captured them before."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable

import pytest
import tensorflow as tf

from tests.graph.tracing import momentum_step, traced, weight_and_slot
from tests.weight_update.rewrite.stages import run_stages
from tf_wu_shard import captures
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.layout import Layout
from tf_wu_shard.refusals import Refusal, Storage
from tf_wu_shard.storage.captured_slots import captured_shards, slots_in_shards
from tf_wu_shard.storage.pending_slots import PendingSlot
from tf_wu_shard.storage.sharded_slot import ShardedSlot
from tf_wu_shard.weight_update.function_slots import planned_slots, storage_constraints

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def test_slots_go_from_planned_to_pending_to_living_in_shards(strategy_of: Strategies) -> None:
    weight, slot = weight_and_slot(strategy_of(2))
    stages = run_stages(traced(strategy_of(2), momentum_step(weight, slot)))
    assert planned_slots(stages.captured, None) == {}
    assert slots_in_shards(stages.captured) == {}
    (pending,) = planned_slots(stages.captured, stages.sharding).values()
    assert isinstance(pending, PendingSlot)
    committed = pending.commit()
    assert slots_in_shards(stages.captured) == {"momentum": committed}
    assert planned_slots(stages.captured, stages.sharding) == {"momentum": committed}


def test_a_slot_in_shards_of_another_cut_is_refused(strategy_of: Strategies) -> None:
    weight, slot = weight_and_slot(strategy_of(2))
    stages = run_stages(traced(strategy_of(2), momentum_step(weight, slot)))
    (variable,) = stages.plan.variables
    (planned,) = variable.slots
    other = dataclasses.replace(planned, layout=Layout((5, 7), 2, 48))
    plan = dataclasses.replace(
        stages.plan, variables=(dataclasses.replace(variable, slots=(other,)),)
    )
    (pending,) = planned_slots(
        stages.captured, dataclasses.replace(stages.sharding, plan=plan)
    ).values()
    assert isinstance(pending, PendingSlot)
    pending.commit()
    with pytest.raises(WuShardError, match="slot momentum lives in shards cut flat 35/2 pad 61"):
        planned_slots(stages.captured, stages.sharding)


def test_only_a_slot_that_no_earlier_function_captured_may_move(
    strategy_of: Strategies, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, slot = weight_and_slot(strategy_of(2))
    graph = traced(strategy_of(2), momentum_step(weight, slot))
    stages = run_stages(graph)
    # In the pass, nobody has noted the function itself yet.
    monkeypatch.setattr(captures, "_captured", weakref.WeakKeyDictionary())
    shared = stages.sharding

    def reasons() -> dict[str, Refusal]:
        found = storage_constraints(graph, stages.analysis, stages.captured, lambda _: shared)
        return dict(found.whole_updates)

    assert reasons() == {}
    earlier = tf.function(lambda: tf.reduce_sum(slot)).get_concrete_function().graph
    captures.record(earlier, [component.handle for component in slot.values])
    assert reasons() == {"momentum": Storage.CAPTURED.at(function=earlier.name)}
    # Of what is left alone anyway nothing has to be known.
    nothing = dataclasses.replace(stages.plan, variables=())
    shared = dataclasses.replace(stages.sharding, plan=nothing)
    assert reasons() == {}
    shared = stages.sharding
    del earlier
    assert reasons() == {}


def test_the_shards_that_a_function_captured_are_known_by_their_slot(
    strategy_of: Strategies,
) -> None:
    weight, slot = weight_and_slot(strategy_of(2))
    stages = run_stages(traced(strategy_of(2), momentum_step(weight, slot)))
    (pending,) = planned_slots(stages.captured, stages.sharding).values()
    assert isinstance(pending, PendingSlot)
    held: ShardedSlot = pending.commit()
    graph = tf.function(held.shards[1].value).get_concrete_function().graph
    ((_, placeholder),) = graph.captures
    assert captured_shards(graph, {"momentum": held}) == {placeholder.op.name: "momentum"}
    assert captured_shards(graph, {}) == {}

"""Which exchanges of a step wait for each other, seen on steps that a strategy really traced."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tests.graph.tracing import traced, weight_and_slot
from tests.weight_update.rewrite.stages import Stages, run_stages
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph.ordering import ordered_ops
from tf_wu_shard.weight_update.rewrite.schedule import CollectiveSchedule

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


def _waiting(strategy: tf.distribute.MirroredStrategy) -> Stages:
    """One weight is updated with two sums; the second is of what the slot has just become."""
    weight, slot = weight_and_slot(strategy, (5, 40))

    def replica(number: tf.Tensor) -> None:
        del number
        context = tf.distribute.get_replica_context()
        assert context is not None, "a step runs on replicas"
        first = context.all_reduce("SUM", weight * 2.0)
        slot.assign_add(first)
        second = context.all_reduce("SUM", tf.tanh(tf.linalg.matmul(slot, slot, transpose_a=True)))
        weight.assign_sub(first * tf.reduce_sum(second) + slot)
        weight.assign_sub(context.all_reduce("SUM", slot * slot))

    return run_stages(traced(strategy, replica), ShardingOptions(min_elements=100))


def test_gradients_of_one_update_travel_apart_where_one_waits_for_the_other(
    strategy_of: Strategies,
) -> None:
    stages = _waiting(strategy_of(2))
    turns = CollectiveSchedule(stages.view, stages.plan)
    (bucket,) = stages.plan.buckets
    assert [len(together) for together in turns.gradients(bucket)] == [1, 1]
    assert stages.result.emitted["reduce_scatter"] == 2
    # In a cycle they would have no order.
    assert len(ordered_ops(stages.result.nodes)) == len(stages.result.nodes)


def test_what_waits_for_a_weight_just_written_has_a_later_turn(strategy_of: Strategies) -> None:
    stages = _waiting(strategy_of(2))
    turns = CollectiveSchedule(stages.view, stages.plan)
    (update,) = stages.analysis.updates
    writes = {op.variable: op.ops[0] for op in update.body if op.type.startswith("Assign")}
    slot = next(v.key for v in update.variables if not v.trainable)
    (value,) = turns.read(slot)
    assert (value.number, value.after) == (1, (writes[slot],))
    assert turns.after(value.after) < turns.after([writes[update.name]])
    assert turns.after([]) == 0

"""Updates that one replica has to do are spread over the replicas by what they cost."""

from __future__ import annotations

import dataclasses

from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.layout import AnyLayout, OwnerLayout, flat_layout, owner_layout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.owners import assign_owners, cost_of
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import ShardingPlan


def whole(analysis: Analysis, *names: str) -> Analysis:
    """The same, where the updates of these weights cannot be computed in shards."""
    updates = tuple(
        dataclasses.replace(u, whole=not names or u.name in names) for u in analysis.updates
    )
    return dataclasses.replace(analysis, updates=updates)


def plan_of(analysis: Analysis, in_shards: dict[str, AnyLayout] | None = None) -> ShardingPlan:
    preferences = Preferences(min_elements=16, bucket_bytes=10**6)
    constraints = StorageConstraints(in_shards=in_shards or {})
    return make_plan(analysis, ShardingOptions(), preferences, constraints)


def owners(plan: ShardingPlan) -> dict[str, int]:
    return {v.variable: v.layout.owner for v in plan.variables if isinstance(v.layout, OwnerLayout)}


def test_a_matrix_costs_its_product_with_its_transpose() -> None:
    shapes = {(8, 4): 128, (4, 8): 128, (30,): 30, (3, 3, 16, 32): 4608 * 32, (2, 3, 64): 384 * 6}
    for shape, cost in shapes.items():
        assert cost_of(analysis_of([Weight("w", shape, ("m", "v"))]).updates[0]) == cost


def test_the_largest_goes_first_and_each_to_whoever_has_least_to_do() -> None:
    # Longest processing time first: 7 | 6 | 5 + 1 | 4 + 3.
    assert assign_owners([3, 5, 7, 1, 6, 4], [None] * 6, 4) == [3, 2, 0, 2, 1, 3]


def test_equal_loads_are_broken_by_the_order_of_updates_and_replicas() -> None:
    assert assign_owners([2, 2, 2, 2, 2], [None] * 5, 3) == [0, 1, 2, 0, 1]


def test_an_owner_that_is_known_stays_and_its_load_counts() -> None:
    assert assign_owners([9, 1, 1, 1], [1, None, None, None], 3) == [1, 0, 2, 0]


def test_only_updates_that_cannot_be_cut_have_an_owner() -> None:
    analysis = whole(analysis_of([Weight("a", (8, 8), ("m",)), Weight("b", (64,), ("n",))]), "a")
    plan = plan_of(analysis)
    assert [str(v.layout) for v in plan.variables] == ["owner replica 0", "flat 64/4"]
    assert [[v.variable for v in bucket] for bucket in plan.buckets] == [["a"], ["b"]]


def test_small_ones_stay_on_every_replica_and_load_nobody() -> None:
    names = {"a": (3, 3), "b": (8, 8), "c": (8, 8)}
    plan = plan_of(whole(analysis_of([Weight(n, shape) for n, shape in names.items()])))
    assert owners(plan) == {"b": 0, "c": 1}
    (alone,) = plan.left_alone
    assert (alone.variable, alone.refusal.reason) == ("a", "9 elements, below min_elements=16")


def test_weights_that_one_replica_updates_together_are_as_large_as_the_largest() -> None:
    analysis = whole(analysis_of([Weight("bias", (3,), ("m",)), Weight("kernel", (8, 8), ("v",))]))
    bias, kernel = analysis.updates
    both = dataclasses.replace(
        bias,
        variables=(*bias.variables, *kernel.variables),
        reductions=(*bias.reductions, *kernel.reductions),
    )
    plan = plan_of(dataclasses.replace(analysis, updates=(both,)))
    assert owners(plan) == {"bias": 0} and plan.left_alone == ()


def test_slots_of_any_shape_have_the_owner_of_their_weight() -> None:
    update = analysis_of([Weight("w", (4, 8), ("m",))]).updates[0]
    side = dataclasses.replace(update.slots[0], key="side", shape=(4, 4))
    step = dataclasses.replace(update.slots[0], key="step", shape=())
    analysis = analysis_of([Weight("big", (64, 64)), Weight("w", (4, 8), ("m",))])
    updates = (
        analysis.updates[0],
        dataclasses.replace(
            analysis.updates[1], variables=(*analysis.updates[1].variables, side, step)
        ),
    )
    plan = plan_of(whole(dataclasses.replace(analysis, updates=updates)))
    assert {s.variable: s.layout for s in plan.variables[1].slots} == {
        "m": owner_layout((4, 8), 4, 1),
        "side": owner_layout((4, 4), 4, 1),
        "step": owner_layout((), 4, 1),
    }


def test_slots_in_shards_keep_their_owner_in_every_function() -> None:
    weights = [Weight("a", (8, 8), ("m",)), Weight("b", (4, 8), ("n",))]
    held: dict[str, AnyLayout] = {"n": owner_layout((4, 8), 4, 0)}
    assert owners(plan_of(whole(analysis_of(weights)), held)) == {"a": 1, "b": 0}


def test_a_slot_that_is_cut_otherwise_keeps_its_update_whole() -> None:
    weights = [Weight("a", (8, 8), ("m",))]
    plan = plan_of(whole(analysis_of(weights)), {"m": flat_layout((8, 8), 4, 4)})
    (alone,) = plan.left_alone
    assert alone.refusal.reason == "its slot m lives in shards that another function cut: flat 64/4"
    owned: dict[str, AnyLayout] = {"m": owner_layout((8, 8), 4, 3)}
    (alone,) = plan_of(analysis_of(weights), owned).left_alone
    said = "its slot m lives in shards that another function cut: owner replica 3"
    assert alone.refusal.reason == said

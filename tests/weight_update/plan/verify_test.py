"""A plan that is not what it has to be is caught, whatever of it is broken."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.weight_update.plan.analyses import FLOAT64, Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.layout import TileLayout, flat_layout, owner_layout, tile_layout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.plan.verify import verify_plan

WEIGHTS = [
    Weight("w", (6, 70), ("m", "v"), carrier="pack"),
    Weight("s", (2,), carrier="pack"),
    Weight("b", (30,), ("n",), carrier="pack"),
    Weight("d", (40,), dtype=FLOAT64),
    Weight("o", (8, 9), ("p",)),
]
PREFERENCES = Preferences(min_elements=3, bucket_bytes=9999)
W, B, D, OWNED = range(4)


@pytest.fixture(scope="module")
def plan() -> ShardingPlan:
    """Two that travel together, one of another type, one with an owner, and one left alone."""
    analysis = analysis_of(WEIGHTS, refused=[Weight("r", (3,), carrier="pack")])
    updates = [dataclasses.replace(u, whole=u.name == "o") for u in analysis.updates]
    analysis = dataclasses.replace(analysis, updates=tuple(updates))
    return make_plan(analysis, ShardingOptions(), PREFERENCES)


def with_variable(plan: ShardingPlan, place: int, **changes: Any) -> ShardingPlan:
    """The same with something else in the plan of one variable."""
    variables = list(plan.variables)
    variables[place] = dataclasses.replace(variables[place], **changes)
    return dataclasses.replace(plan, variables=tuple(variables))


def check(plan: ShardingPlan, said: str) -> None:
    with pytest.raises(WuShardError, match=said):
        verify_plan(plan)


def test_what_the_planner_makes_is_sound(plan: ShardingPlan) -> None:
    assert [(v.variable, v.bucket) for v in plan.variables] == [
        *(("w", 0), ("b", 0), ("d", 1), ("o", 2)),
    ]
    assert [r.key for r in plan.summed_whole] == [1, 5]
    verify_plan(plan)


def test_a_gradient_that_is_lost_is_caught(plan: ShardingPlan) -> None:
    check(with_variable(plan, W, reductions=()), r"from gradients \(0,\), and planned with \(\)")
    check(dataclasses.replace(plan, summed_whole=()), "gradient 1 loses its carrier")


def test_the_rows_of_a_table_may_lose_their_carrier_as_they_are_gathered_as_ever(
    plan: ShardingPlan,
) -> None:
    whole = {reduction.key for reduction in plan.summed_whole}
    assert whole
    gathered = tuple(
        dataclasses.replace(r, gathered=Gathered.ROWS if r.key in whole else None)
        for r in plan.reductions
    )
    verify_plan(dataclasses.replace(plan, reductions=gathered, summed_whole=()))


def test_a_gradient_of_two_updates_is_caught(plan: ShardingPlan) -> None:
    w = plan.variables[W]
    update = dataclasses.replace(plan.variables[B].update, reductions=w.update.reductions)
    both = with_variable(plan, B, reductions=w.reductions, update=update)
    check(both, "gradient 0 belongs to w and to b")


def test_a_gradient_that_is_sharded_and_summed_whole_is_caught(plan: ShardingPlan) -> None:
    whole = (*plan.summed_whole, plan.reductions[0])
    check(
        dataclasses.replace(plan, summed_whole=whole),
        "gradient 0 belongs to w and to the sums that",
    )


def test_reductions_out_of_order_are_caught(plan: ShardingPlan) -> None:
    check(dataclasses.replace(plan, reductions=plan.reductions[::-1]), "not numbered in order")


def test_a_variable_of_two_updates_is_caught(plan: ShardingPlan) -> None:
    w, b = plan.variables[W].update, plan.variables[B].update
    update = dataclasses.replace(b, variables=(*b.variables, *w.variables[1:2]))
    check(with_variable(plan, B, update=update), "variable m belongs to w and to b")


@pytest.mark.parametrize(("place", "bucket", "said"), [(D, 3, r"\[0, 2, 3\]"), (W, -1, r"\[-1, 0")])
def test_a_gap_between_buckets_is_caught(
    plan: ShardingPlan, place: int, bucket: int, said: str
) -> None:
    check(with_variable(plan, place, bucket=bucket), f"buckets of the plan are numbered {said}")


def test_a_bucket_of_two_types_is_caught(plan: ShardingPlan) -> None:
    joined = with_variable(with_variable(plan, D, bucket=0), OWNED, bucket=1)
    check(joined, "bucket 0 has tensors of 2 kinds")


def test_a_bucket_of_an_owners_and_all_others_is_caught(plan: ShardingPlan) -> None:
    w = plan.variables[W]
    owned = owner_layout(w.update.variables[0].shape, 4, 0)
    check(with_variable(plan, W, layouts=(owned,)), "bucket 0 has tensors of 2 kinds")


def test_a_bucket_of_two_kinds_of_tiles_is_caught() -> None:
    def cut(shape: tuple[int, ...], width: int) -> TileLayout:
        return tile_layout(shape, (4,), tuple(range(4)))

    weights = [Weight("a", (64, 128)), Weight("b", (640, 128))]
    plan = make_plan(analysis_of(weights), ShardingOptions(), Preferences(1, 10**6, layout=cut))
    verify_plan(plan)
    check(with_variable(plan, 1, bucket=0), "bucket 0 has tensors of 2 kinds")


@pytest.mark.parametrize("place", [W, OWNED])
def test_a_cut_for_other_replicas_is_caught(plan: ShardingPlan, place: int) -> None:
    """So is an owner that is none of the replicas."""
    shape = plan.variables[place].update.variables[0].shape
    cut = flat_layout(shape, 5, 4) if place == W else owner_layout(shape, 5, 4)
    check(with_variable(plan, place, layouts=(cut,)), "is cut for 5 replicas, and there are 4")


def test_a_variable_of_a_size_that_is_not_cut_is_caught(plan: ShardingPlan) -> None:
    cut = flat_layout((6, 71), 4, 4)
    check(with_variable(plan, W, layouts=(cut,)), "no layout of w is of the size of w")


def test_a_slot_that_is_forgotten_is_caught(plan: ShardingPlan) -> None:
    slots = plan.variables[W].slots
    check(with_variable(plan, W, slots=slots[:1]), r"w keeps \['m'\], not \['m', 'v'\]")


def test_a_slot_that_is_cut_otherwise_is_caught(plan: ShardingPlan) -> None:
    first, second = plan.variables[W].slots
    wider = dataclasses.replace(second, layout=flat_layout((6, 70), 2, 4))
    check(with_variable(plan, W, slots=(first, wider)), "v is cut flat 420/2.*and its update flat")
    more = dataclasses.replace(second, layout=dataclasses.replace(second.layout, num_shards=5))
    check(with_variable(plan, W, slots=(first, more)), "v is cut flat 420/5.*and its update flat")
    turned = dataclasses.replace(second, layout=dataclasses.replace(second.layout, shape=(70, 6)))
    check(with_variable(plan, W, slots=(first, turned)), "v is cut flat")


def test_a_slot_of_another_owner_is_caught(plan: ShardingPlan) -> None:
    (slot,) = plan.variables[OWNED].slots
    other = dataclasses.replace(slot, layout=owner_layout((8, 9), 4, 3))
    said = "p is cut owner replica 3, and its update owner replica 0"
    check(with_variable(plan, OWNED, slots=(other,)), said)


def test_a_weight_in_shards_that_is_cut_otherwise_is_caught() -> None:
    preferences = Preferences(1, 1, weights_in_shards=True)
    plan = make_plan(analysis_of([Weight("w", (64,), ("m",))]), ShardingOptions(), preferences)
    verify_plan(plan)
    (weight,) = plan.variables[0].sharded_weights
    other = dataclasses.replace(weight, layout=flat_layout((64,), 2, 4))
    check(with_variable(plan, 0, sharded_weights=(other,)), "w is cut flat 64/2")

"""What pays is sharded; everything else is left alone with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tests.weight_update.plan.analyses import FLOAT16, FLOAT64, Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.layout import AnyLayout, flat_layout, owner_layout, tile_layout
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Refusal, Storage
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import ShardingPlan


def plan_of(
    analysis: Analysis,
    options: ShardingOptions | None = None,
    *,
    min_elements: int = 1,
    bucket_bytes: int = 1,
    tile: int | None = None,
    pinned: Mapping[str, Refusal] | None = None,
    in_shards: Mapping[str, AnyLayout] | None = None,
) -> ShardingPlan:
    return make_plan(
        analysis,
        options or ShardingOptions(),
        Preferences(min_elements, bucket_bytes, tile),
        StorageConstraints(whole_updates=pinned or {}, in_shards=in_shards or {}),
    )


def left(plan: ShardingPlan) -> dict[str, str]:
    return {a.variable: a.refusal.reason for a in plan.left_alone}


def test_weight_and_slots_are_cut_alike() -> None:
    plan = plan_of(analysis_of([Weight("w", (30, 5), ("m", "v"))]))
    (variable,) = plan.variables
    assert str(variable.layout) == "flat 150/4 pad 42"
    assert [(s.variable, s.layout) for s in variable.slots] == [
        ("m", variable.layout),
        ("v", variable.layout),
    ]
    assert (plan.num_replicas, plan.fingerprint, plan.left_alone) == (4, "f1", ())


def test_a_step_of_too_little_is_left_alone_whole_unless_its_slots_live_in_shards() -> None:
    analysis = analysis_of([Weight("w", (30, 5), ("m",)), Weight("x", (40,), ("n",))])
    preferences = Preferences(min_elements=1, bucket_bytes=1, min_step_elements=191)
    plan = make_plan(analysis, ShardingOptions(), preferences)
    why = "what the step could shard has 190 elements in all, below min_step_elements=191"
    assert left(plan) == {"w": why, "x": why} and not plan.variables
    for forced in (ShardingOptions(min_step_elements=1), ShardingOptions(min_elements=1)):
        assert len(make_plan(analysis, forced, preferences).variables) == 2
    asked = make_plan(analysis, ShardingOptions(min_elements=1, min_step_elements=191), preferences)
    assert left(asked) == {"w": why, "x": why}
    held = StorageConstraints(in_shards={"m": flat_layout((30, 5), 4, 4)})
    assert len(make_plan(analysis, ShardingOptions(), preferences, held).variables) == 2


def test_the_narrowest_element_type_aligns_the_cut() -> None:
    wide = plan_of(
        analysis_of(
            [Weight("w", (256,), ("m",))],
        )
    ).variables[0]
    narrow = plan_of(analysis_of([Weight("w", (200,), ("m",), slot_dtype=FLOAT16)])).variables[0]
    assert wide.layout.shard_elements == 64
    # 50 elements a shard, rounded up to 64 bytes of float16.
    assert narrow.layout.shard_elements == narrow.slots[0].layout.shard_elements == 64


def test_a_slot_of_another_shape_keeps_its_shape_and_is_cut_at_the_same_places() -> None:
    analysis = analysis_of([Weight("w", (6, 6))])
    update = analysis.updates[0]
    slot = analysis_of([Weight("z", (36,), ("m",))]).updates[0].slots[0]
    flat = type(update)((*update.variables, slot), update.reductions, (), update.devices)
    other = type(analysis)("f1", 4, analysis.reductions, (flat,), (), ())
    (variable,) = plan_of(other).variables
    assert variable.slots[0].layout.shape == (36,)
    assert variable.slots[0].layout.shard_elements == variable.layout.shard_elements


def test_a_small_variable_is_left_alone() -> None:
    analysis = analysis_of([Weight("w", (8,)), Weight("b", (7,))])
    plan = plan_of(analysis, min_elements=8)
    assert [v.variable for v in plan.variables] == ["w"]
    assert left(plan) == {"b": "7 elements, below min_elements=8"}


def test_a_variable_whose_slots_live_in_shards_stays_sharded_however_small() -> None:
    analysis = analysis_of([Weight("a", (7,), ("m",)), Weight("b", (7,), ("n",))])
    plan = plan_of(
        analysis,
        min_elements=8,
        in_shards={"m": flat_layout((7,), 4, 4), "other": flat_layout((7,), 4, 4)},
    )
    assert [v.variable for v in plan.variables] == ["a"]
    assert left(plan) == {"b": "7 elements, below min_elements=8"}


def test_an_owner_takes_no_weight_that_another_function_has_in_shards_as_a_slot() -> None:
    one = analysis_of([Weight("a", (7,), ("m",))])
    whole = dataclasses.replace(
        one, updates=tuple(dataclasses.replace(u, whole=True) for u in one.updates)
    )
    held = {"a": flat_layout((7,), 4, 4)}
    # Written in parts it may live in any; an owner hands out what its own component holds.
    assert [v.variable for v in plan_of(one, in_shards=held).variables] == ["a"]
    assert left(plan_of(whole, in_shards=held)) == {
        "a": f"its slot a lives in shards that another function cut: {held['a']}"
    }
    owned = {"a": owner_layout((7,), 4, 1), "m": owner_layout((7,), 4, 1)}
    assert [v.variable for v in plan_of(whole, in_shards=owned).variables] == ["a"]


def test_the_users_min_elements_counts_more_than_the_dialects() -> None:
    analysis = analysis_of([Weight("w", (8,))])
    assert plan_of(analysis, ShardingOptions(min_elements=1), min_elements=99).variables
    plan = plan_of(analysis, ShardingOptions(min_elements=9), min_elements=1)
    assert left(plan) == {"w": "8 elements, below min_elements=9"}


def test_a_limit_that_grows_with_the_replicas_says_so() -> None:
    """2,048 elements are not few: they are for four replicas that each want a tile."""
    analysis = analysis_of([Weight("w", (2048,))])
    each = ", for each of 4 replicas a tile of 1024"
    assert left(plan_of(analysis, min_elements=4096, tile=1024)) == {
        "w": f"2048 elements, below min_elements=4096{each}"
    }
    asked = plan_of(analysis, ShardingOptions(min_elements=4096), min_elements=4096, tile=1024)
    assert left(asked) == {"w": "2048 elements, below min_elements=4096"}


def test_a_scalar_may_be_sharded_and_an_empty_variable_may_not() -> None:
    plan = plan_of(analysis_of([Weight("s", ()), Weight("e", (3, 0))]))
    assert [str(v.layout) for v in plan.variables] == ["flat 1/4 pad 63"]
    assert left(plan) == {"e": "it has no elements"}


def test_a_pinned_slot_keeps_its_weight_whole() -> None:
    analysis = analysis_of([Weight("w", (64,), ("m", "v")), Weight("u", (64,), ("n",))])
    plan = plan_of(analysis, pinned={"v": Storage.CAPTURED.at(function="evaluate")})
    assert left(plan) == {"w": "its slot v is captured by evaluate, traced before"}
    assert [v.variable for v in plan.variables] == ["u"]


def test_a_refusal_of_the_analysis_reaches_the_plan_with_its_place() -> None:
    plan = plan_of(analysis_of([Weight("w", (8,))], refused=[Weight("r", (8,))]))
    (alone,) = plan.left_alone
    assert (alone.variable, str(alone.refusal)) == ("r", "no rule for Sum (Sum_1)")
    assert alone.update.reductions == (1,)


def test_every_variable_with_a_gradient_is_in_the_plan_once() -> None:
    weights = [Weight("a", (64,)), Weight("b", (2,)), Weight("c", (64,), ("m",)), Weight("d", ())]
    plan = plan_of(
        analysis_of(weights, refused=[Weight("r", (4,))]),
        min_elements=3,
        pinned={"m": Storage.CAPTURED.at(function="f")},
    )
    named = [v.variable for v in plan.variables] + [a.variable for a in plan.left_alone]
    assert sorted(named) == ["a", "b", "c", "d", "r"]


def test_small_variables_of_one_type_share_a_bucket() -> None:
    weights = [
        *(Weight("a", (8,)), Weight("b", (8,)), Weight("big", (100,))),
        *(Weight("d", (8,), dtype=FLOAT64), Weight("c", (8,))),
    ]
    plan = plan_of(analysis_of(weights), bucket_bytes=100)
    assert [[v.variable for v in bucket] for bucket in plan.buckets] == [
        ["a", "b", "c"],
        ["big"],
        ["d"],
    ]
    alone = plan_of(analysis_of(weights), ShardingOptions(bucket_bytes=1), bucket_bytes=100)
    assert [len(bucket) for bucket in alone.buckets] == [1, 1, 1, 1, 1]


def test_a_gradient_that_shared_a_carrier_with_a_sharded_one_is_summed_whole() -> None:
    weights = [
        Weight("w", (64,), carrier="pack"),
        Weight("b", (2,), carrier="pack"),
        Weight("other", (2,)),
    ]
    plan = plan_of(analysis_of(weights), min_elements=8)
    assert [v.variable for v in plan.variables] == ["w"]
    assert [reduction.key for reduction in plan.summed_whole] == [1]


def test_where_nothing_is_sharded_no_carrier_is_lost() -> None:
    weights = [Weight("w", (4,), carrier="pack"), Weight("b", (2,), carrier="pack")]
    plan = plan_of(analysis_of(weights), min_elements=8)
    assert plan.variables == ()
    assert plan.summed_whole == ()


def in_phases() -> Analysis:
    """Gradients of b and d wait for the updates of a and c; the later ones are ready first."""
    weights = [Weight(name, (8,)) for name in "abcd"]
    analysis = analysis_of(weights)
    reductions = tuple(
        dataclasses.replace(r, depth=r.key % 2, ready=9 - r.key) for r in analysis.reductions
    )
    return dataclasses.replace(analysis, reductions=reductions)


def test_gradients_that_wait_for_updates_never_travel_with_theirs() -> None:
    plan = plan_of(in_phases(), bucket_bytes=1000)
    assert [[v.variable for v in bucket] for bucket in plan.buckets] == [["a", "c"], ["b", "d"]]


def test_buckets_take_turns_as_their_gradients_become_ready() -> None:
    few = make_plan(in_phases(), ShardingOptions(), Preferences(1, 1, most_buckets=4))
    assert [v.variable for bucket in few.buckets for v in bucket] == ["c", "a", "d", "b"]
    fewest = make_plan(in_phases(), ShardingOptions(), Preferences(1, 1, most_buckets=1))
    assert [[v.variable for v in bucket] for bucket in fewest.buckets] == [["a", "c"], ["b", "d"]]


def sides(analysis: Analysis, *shapes: tuple[int, ...]) -> ShardingPlan:
    """The plan for a TPU of the first update; its slots have these shapes."""
    update = analysis.updates[0]
    weight, *slots = update.variables
    shaped = [dataclasses.replace(s, shape=n) for s, n in zip(slots, shapes, strict=True)]
    update = dataclasses.replace(update, variables=(weight, *shaped))
    return make_plan(
        dataclasses.replace(analysis, updates=(update,)),
        ShardingOptions(),
        Preferences(
            min_elements=1,
            bucket_bytes=10**6,
            layout=lambda shape, width: tile_layout(shape, (4,), tuple(range(4))),
            weights_in_shards=True,
        ),
    )


def test_on_a_tpu_a_slot_of_another_size_has_a_layout_of_its_own() -> None:
    analysis = analysis_of([Weight("w", (64, 256), ("left", "right", "m"))])
    plan = sides(analysis, (64, 64), (256, 256), (64, 256))
    (variable,) = plan.variables
    assert [s.layout.shape for s in variable.slots] == [(64, 64), (256, 256), (64, 256)]
    assert variable.layout_of(64 * 64) == variable.slots[0].layout
    assert variable.layout_of(64 * 256) == variable.layout == variable.slots[2].layout


def test_on_a_tpu_slots_of_one_size_have_one_shape() -> None:
    analysis = analysis_of([Weight("w", (64, 256), ("left", "right"))])
    (reason,) = left(sides(analysis, (64, 64), (32, 128))).values()
    assert reason == "right has another shape than another slot of its size, [32, 128]"


def test_on_a_tpu_sides_that_fill_no_tiles_count_with_what_their_shards_take() -> None:
    analysis = analysis_of([Weight("w", (64, 32), ("left", "right"))])
    # A quarter of the weight, and of each vector a tile, mostly padding.
    (reason,) = left(sides(analysis, (64,), (32,))).values()
    assert reason == "it and its slots have 2144 elements; cut, every replica would hold 2560"
    assert left(sides(analysis, (64, 64), (32,))) == {}

"""Bytes on the wire: an all-reduce counts as what it is made of, and what is not cut as it was."""

from __future__ import annotations

import dataclasses

from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.report.wire import wire_bytes
from tf_wu_shard.weight_update.plan.planner import make_plan

LARGE, SMALL = Weight("w", (64,), ("m",)), Weight("b", (4,))


def wire(*weights: Weight, options: ShardingOptions | None = None) -> tuple[int, int]:
    analysis = analysis_of(list(weights))
    preferences = Preferences(min_elements=8, bucket_bytes=1, narrow_sums=True)
    return wire_bytes(make_plan(analysis, options or ShardingOptions(), preferences))


def test_a_sharded_update_moves_as_much_as_its_all_reduce_did() -> None:
    n = analysis_of([LARGE]).num_replicas
    size = 64 * 4 * (n - 1) // n
    assert wire(LARGE) == (2 * size, 2 * size)


def test_what_is_left_alone_counts_alike_on_both_sides() -> None:
    n = analysis_of([SMALL]).num_replicas
    assert wire(SMALL) == (2 * 4 * 4 * (n - 1) // n,) * 2
    assert wire(LARGE, SMALL)[0] == wire(LARGE)[0] + wire(SMALL)[0]


def test_gradients_that_travel_in_half_the_bits_save_half_of_their_way() -> None:
    before, after = wire(LARGE, options=ShardingOptions(wire_dtype="bfloat16"))
    assert after == before * 3 // 4


def test_a_step_that_sums_over_no_replicas_moves_nothing() -> None:
    analysis = analysis_of([LARGE])
    plan = make_plan(analysis, ShardingOptions(), Preferences(min_elements=8, bucket_bytes=1))
    assert wire_bytes(dataclasses.replace(plan, num_replicas=0)) == (0, 0)

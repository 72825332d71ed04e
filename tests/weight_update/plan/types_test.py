"""A plan is data that can be asked."""

from __future__ import annotations

from tests.weight_update.plan.analyses import FLOAT16, Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Storage
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import ShardingPlan


def a_plan() -> ShardingPlan:
    """A plan with something in every field."""
    weights = [
        Weight("w", (6, 7), ("m", "v"), slot_dtype=FLOAT16, carrier="pack"),
        Weight("s", (), ("n",), carrier="pack"),
        Weight("b", (30,), carrier="pack"),
    ]
    analysis = analysis_of(weights, refused=[Weight("r", (3,))])
    constraints = StorageConstraints(whole_updates={"n": Storage.CAPTURED.at(function="f")})
    preferences = Preferences(min_elements=1, bucket_bytes=999)
    return make_plan(analysis, ShardingOptions(), preferences, constraints)


def test_buckets_keep_the_order_of_their_variables() -> None:
    plan = a_plan()
    assert [[v.variable for v in bucket] for bucket in plan.buckets] == [["w", "b"]]

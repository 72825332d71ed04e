"""A plan survives a round trip through JSON."""

from __future__ import annotations

import json

import pytest

from tests.weight_update.plan.analyses import FLOAT16, Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Storage
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.types import PLAN_VERSION, ShardingPlan, plan_from_json


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


def test_a_plan_comes_back_from_json_as_it_was() -> None:
    plan = a_plan()
    assert plan.variables
    assert plan.left_alone
    assert plan.summed_whole
    assert plan_from_json(plan.to_json()) == plan
    assert plan_from_json(plan_from_json(plan.to_json()).to_json()) == plan


def test_a_plan_is_plain_data() -> None:
    data = json.loads(a_plan().to_json())
    assert data["version"] == PLAN_VERSION
    assert data["variables"][0]["layout"] == {"shape": [6, 7], "num_shards": 4, "shard_size": 32}
    assert {a["variable"] for a in data["left_alone"]} == {"s", "r"}


@pytest.mark.parametrize("text", ['{"version": 0}', "[]", "{}"])
def test_what_is_no_plan_of_this_version_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a sharding plan"):
        plan_from_json(text)


def test_buckets_keep_the_order_of_their_variables() -> None:
    plan = a_plan()
    assert [[v.variable for v in bucket] for bucket in plan.buckets] == [["w", "b"]]

"""A plan for what was found in a live function."""

from __future__ import annotations

from tf_wu_shard.analysis.types import Analysis
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dialects.base import Dialect
from tf_wu_shard.graph.capture import Captured
from tf_wu_shard.plan.planner import make_plan
from tf_wu_shard.plan.types import ShardingPlan
from tf_wu_shard.storage import function_slots


def planned(
    analysis: Analysis,
    captured: Captured,
    dialect: Dialect,
    options: ShardingOptions,
    whole: function_slots.Whole,
) -> ShardingPlan:
    """Decides what to shard.

    Args:
        analysis: What was found.
        captured: Where, and the live variables.
        dialect: How its replicas talk, with its own defaults.
        options: What the user asked for.
        whole: What cannot live in shards.
    """
    return make_plan(
        analysis,
        options,
        min_elements=dialect.min_elements,
        bucket_bytes=dialect.bucket_bytes,
        most_buckets=dialect.most_buckets,
        pinned=whole.slots,
        whole_weights=whole.weights,
        in_shards={
            key: held.layout for key, held in function_slots.slots_in_shards(captured).items()
        },
        layout_of=dialect.layout,
        weights_in_shards=dialect.weights_in_shards,
    )

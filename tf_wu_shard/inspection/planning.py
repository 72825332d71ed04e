"""A plan for what was found in a function, for replicas that it may not have been traced for."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.analysis.types import Analysis
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dialects.base import Dialect
from tf_wu_shard.plan.planner import make_plan
from tf_wu_shard.plan.types import ShardingPlan
from tf_wu_shard.storage.function_slots import Whole


def planned(
    analysis: Analysis,
    ground: Dialect,
    replicas: int,
    options: ShardingOptions | None = None,
    whole: Whole | None = None,
) -> tuple[Analysis, ShardingPlan]:
    """A plan for some number of replicas.

    Args:
        analysis: What was found, for whatever number.
        ground: Where the replicas run.
        replicas: How many there are.
        options: What the user asked for; None for the defaults.
        whole: What cannot live in shards; None where nothing is known to.

    Returns:
        The analysis for this number, and the plan.
    """
    there = dataclasses.replace(analysis, num_replicas=replicas)
    plan = make_plan(
        there,
        options or ShardingOptions(),
        min_elements=ground.min_elements,
        bucket_bytes=ground.bucket_bytes,
        most_buckets=ground.most_buckets,
        pinned=whole.slots if whole is not None else None,
        whole_weights=whole.weights if whole is not None else None,
        layout_of=ground.layout,
        weights_in_shards=ground.weights_in_shards,
    )
    return there, plan

"""Turns an analysis into a plan: what pays is sharded, everything else is left with its reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

from tf_wu_shard.analysis.types import Analysis, GradientReduction, WeightUpdate
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.layout import Layout, flat_layout
from tf_wu_shard.plan.buckets import assign_buckets
from tf_wu_shard.plan.types import (
    PLAN_VERSION,
    LeftAlone,
    ShardingPlan,
    SlotPlan,
    VariablePlan,
)


def make_plan(
    analysis: Analysis,
    options: ShardingOptions,
    *,
    min_elements: int,
    bucket_bytes: int,
    pinned: Mapping[str, str] | None = None,
    in_shards: Set[str] = frozenset(),
) -> ShardingPlan:
    """Decides what to shard.

    Args:
        analysis: What the graph holds.
        options: What the user asked for.
        min_elements: The dialect's default for `options.min_elements`.
        bucket_bytes: The dialect's default for `options.bucket_bytes`.
        pinned: Slots that must stay whole, by key, each with the reason.
        in_shards: Slots that live in shards already, by key. Their variables stay sharded however
            small they are: an update that gathers its slots first would be the slowest of all.

    Returns:
        The plan. Every variable with a reduced gradient is in it, sharded or left alone.
    """
    smallest = min_elements if options.min_elements is None else options.min_elements
    capacity = bucket_bytes if options.bucket_bytes is None else options.bucket_bytes
    chosen: list[tuple[int, WeightUpdate]] = []
    left: list[LeftAlone] = []
    for number, update in enumerate(analysis.updates):
        committed = any(slot.key in in_shards for slot in update.slots)
        reason = _reason_against(update, 1 if committed else smallest, pinned or {})
        if reason is None:
            chosen.append((number, update))
        else:
            left.append(LeftAlone(update.name, reason, "", update.reductions))
    for refused in analysis.refused:
        refusal = refused.refusal
        left.append(LeftAlone(refused.variable, refusal.reason, refusal.where, refused.reductions))
    buckets = assign_buckets([_travels(analysis, u) for _, u in chosen], capacity)
    variables = tuple(
        _variable_plan(analysis, number, update, bucket)
        for (number, update), bucket in zip(chosen, buckets, strict=True)
    )
    return ShardingPlan(
        version=PLAN_VERSION,
        fingerprint=analysis.fingerprint,
        num_replicas=analysis.num_replicas,
        variables=variables,
        summed_whole=_summed_whole(analysis.reductions, variables),
        left_alone=tuple(left),
    )


def _reason_against(update: WeightUpdate, smallest: int, pinned: Mapping[str, str]) -> str | None:
    size = math.prod(update.variables[0].shape)
    if size == 0:
        return "it has no elements"
    if size < smallest:
        return f"{size} elements, below min_elements={smallest}"
    for variable in update.slots:
        if variable.key in pinned:
            return f"its slot {variable.key} {pinned[variable.key]}"
    return None


def _travels(analysis: Analysis, update: WeightUpdate) -> tuple[int, int]:
    reduction = analysis.reductions[update.reductions[0]]
    return reduction.size * item_bytes(reduction.dtype), reduction.dtype


def _variable_plan(
    analysis: Analysis, number: int, update: WeightUpdate, bucket: int
) -> VariablePlan:
    dtype = analysis.reductions[update.reductions[0]].dtype
    # One cut for weight, gradient and slots, though their dtypes may differ: the narrowest decides
    # where the boundaries are aligned for all of them.
    dtypes = [dtype, *(v.dtype for v in update.variables)]
    narrowest = min(item_bytes(d) for d in dtypes)
    layout = flat_layout(update.variables[0].shape, analysis.num_replicas, narrowest)
    slots = tuple(
        SlotPlan(v.key, Layout(v.shape, layout.num_shards, layout.shard_size), v.dtype)
        for v in update.slots
    )
    return VariablePlan(
        variable=update.name,
        weights=tuple(v.key for v in update.weights),
        layout=layout,
        dtype=dtype,
        slots=slots,
        update=number,
        reductions=update.reductions,
        bucket=bucket,
    )


def _summed_whole(
    reductions: tuple[GradientReduction, ...], variables: tuple[VariablePlan, ...]
) -> tuple[int, ...]:
    """The reductions that lose their carrier because a sharded gradient travelled with them."""
    sharded = {key for v in variables for key in v.reductions}
    lost = {carrier for key in sharded for carrier in reductions[key].carriers}
    return tuple(
        r.key for r in reductions if r.key not in sharded and lost.intersection(r.carriers)
    )

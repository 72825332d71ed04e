"""A plan for what was found in a function, for replicas that it may not have been traced for."""

from __future__ import annotations

import dataclasses
import math

from tf_wu_shard import refusals
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.grounds.dialect import Dialect, Gathered
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.sharding import Sharding, plan_sharding

# What of a gradient there is a sum of: a dense one, or the values of a sparse one.
_SUMMED = (None, Gathered.VALUES)


def planned(
    analysis: Analysis,
    ground: Dialect,
    replicas: int,
    options: ShardingOptions | None = None,
    constraints: StorageConstraints | None = None,
) -> Sharding:
    """A plan for some number of replicas.

    Args:
        analysis: What was found, for whatever number.
        ground: Where the replicas run.
        replicas: How many there are.
        options: What the user asked for; None for the defaults.
        constraints: What is known of the variables' storage; None where nothing is.

    Returns:
        What is planned for this number. On TPUs every gradient is summed as a tensor.
    """
    there = dataclasses.replace(analysis, num_replicas=replicas)
    if isinstance(ground, TpuCluster):
        there = _with_dense_gradients(there)
    asked = constraints or StorageConstraints()
    return plan_sharding(there, ground, options or ShardingOptions(), asked)


def _with_dense_gradients(analysis: Analysis) -> Analysis:
    """The same, with each sparse gradient made dense before it is summed, as TPUStrategy does.

    Its update then is of tensors and has other ops, which this step does not hold, on the same
    variables: a body that is none of it is left out.
    """
    reductions = list(analysis.reductions)
    parts = {r.key for r in reductions if r.gathered is not None}
    updates = []
    for update in analysis.updates:
        if parts.isdisjoint(update.reductions):
            updates.append(update)
            continue
        values = [k for k in update.reductions if reductions[k].gathered in _SUMMED]
        for key in values:
            if key in parts:
                size = math.prod(update.variables[0].shape)
                reductions[key] = dataclasses.replace(
                    reductions[key], size=size, gathered=None, order=()
                )
        updates.append(dataclasses.replace(update, reductions=tuple(values), body=()))
    refused = tuple(
        r
        if parts.isdisjoint(r.reductions)
        else dataclasses.replace(r, refusal=refusals.Inspection.DENSE_ON_TPUS.at(r.refusal.where))
        for r in analysis.refused
    )
    return dataclasses.replace(
        analysis, reductions=tuple(reductions), updates=tuple(updates), refused=refused
    )

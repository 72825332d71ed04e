"""What replicas hold of weights and slots, the more of them there are."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from tf_wu_shard.analysis.types import Analysis
from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.graph.tpu_cluster import Cluster
from tf_wu_shard.inspection import grounds
from tf_wu_shard.inspection.answer import MemoryRow
from tf_wu_shard.inspection.grounds import Question
from tf_wu_shard.inspection.planning import planned
from tf_wu_shard.model_files.types import Model
from tf_wu_shard.report.summary import Bytes, summarize
from tf_wu_shard.storage.function_slots import Whole

REPLICAS = tuple(2**power for power in range(1, 11))


def rows(
    model: Model,
    analysis: Analysis,
    program: Cluster | None,
    question: Question,
    whole: Whole | None = None,
) -> tuple[MemoryRow, ...]:
    """What the fullest replica holds, for 2, 4, 8 ... 1024 replicas.

    Updates that are left alone count alike on both sides: their weights, and what the model's
    files say are their slots.

    Args:
        model: The model.
        analysis: What was found in one of its functions.
        program: The TPU program that it is, or None.
        question: What was asked of it.
        whole: What of it cannot live in shards; None where nothing is known to.
    """
    refused = {r.variable for r in analysis.refused}
    weights = _bytes(model, refused)
    slots = _bytes(model, {s.slot for s in model.slots if s.variable in refused})
    found = []
    for replicas in REPLICAS:
        ground = grounds.assumed_ground(replicas, program, question)
        there, plan = planned(analysis, ground, replicas, question.options, whole)
        report = summarize("", there, plan, {}, "")
        found.append(
            MemoryRow(
                replicas,
                _with(report.weight_bytes_per_replica, weights),
                _with(report.slot_bytes_per_replica, slots),
            )
        )
    return tuple(found)


def _bytes(model: Model, keys: Iterable[str]) -> int:
    known = (model.variables[key] for key in keys if key in model.variables)
    return sum(
        math.prod(variable.shape) * item_bytes(variable.dtype)
        for variable in known
        if variable.shape is not None
    )


def _with(counted: Bytes, alike: int) -> Bytes:
    return dataclasses.replace(
        counted, unsharded=counted.unsharded + alike, sharded=counted.sharded + alike
    )

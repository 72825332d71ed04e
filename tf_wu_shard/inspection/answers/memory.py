"""What replicas hold of weights and slots, the more of them there are."""

from __future__ import annotations

from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.inspection.answers.answer import MemoryRow
from tf_wu_shard.inspection.steps import grounds
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints

REPLICAS = tuple(2**power for power in range(1, 11))


def rows(
    analysis: Analysis,
    program: Cluster | None,
    question: Question,
    constraints: StorageConstraints | None = None,
) -> tuple[MemoryRow, ...]:
    """What the fullest replica holds, for 2, 4, 8 ... 1024 replicas.

    Args:
        analysis: What was found in a step; weights whose updates were refused count alike on both
            sides.
        program: The TPU program that it is, or None.
        question: What was asked of it.
        constraints: What is known of the variables' storage; None where nothing is.
    """
    found = []
    for replicas in REPLICAS:
        ground = grounds.assumed_ground(replicas, program, question)
        report = planned(analysis, ground, replicas, question.options, constraints).report("")
        weights, slots = report.weight_bytes_per_replica, report.slot_bytes_per_replica
        found.append(MemoryRow(replicas, weights, slots))
    return tuple(found)

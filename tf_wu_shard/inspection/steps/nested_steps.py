"""The steps in a function of a model's files: itself, and those in its branches and loops.

A step that was read and analysed is frozen data, wherever it came from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.inspection.reading.branches_in_sight import branches_in_sight
from tf_wu_shard.inspection.steps import grounds
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.tensorflow_private.graph_rebuilding import traced_name
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.nested_plans import NestedPlans
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints


@dataclasses.dataclass(frozen=True)
class FoundStep:
    """A step, and what was found in it.

    Attributes:
        view: Its graph.
        analysis: What was found.
        program: The TPU program that it is; None where it is none.
        replicas: For how many replicas of one process it was traced; 1 for one device.
        constraints: What is known of its variables' storage; None where nothing is.
    """

    view: GraphView
    analysis: Analysis
    program: Cluster | None = None
    replicas: int = 1
    constraints: StorageConstraints | None = None

    @property
    def sums_over(self) -> int:
        """Over how many replicas it sums its gradients; 1 where it sums none."""
        return self.replicas if self.program is None else self.program.num_replicas

    @property
    def is_assumed(self) -> bool:
        """Whether it runs on one device and its gradients are only taken for summed."""
        return self.program is None and self.replicas == 1


def steps_in(
    view: GraphView, functions: Mapping[str, Any], program: Cluster | None, question: Question
) -> tuple[FoundStep, list[tuple[str, FoundStep]]]:
    """Finds and analyses them.

    Args:
        view: The function.
        functions: The FunctionDefs of its model, by name.
        program: The TPU program that it is; None of one that was traced on one device.
        question: For which replicas to plan.

    Returns:
        The function itself, and those steps that are nested in it, by the names of theirs.

    Raises:
        ModelFileError: A function makes no sense.
    """
    replicas = grounds.asked_replicas(program, question)
    traced = replicas if program is None else program.num_replicas
    captured, nested = branches_in_sight(view, functions, program, traced)
    found = analyze(captured.view, grounds.traced_ground(program, question))
    inside = None if program is None else program._replace(name="")
    plans = NestedPlans(captured, nested, grounds.traced_ground(inside, question))
    ground = grounds.assumed_ground(replicas, program, question)
    plans.plan(
        lambda analysis, asked: planned(analysis, ground, replicas, question.options, asked),
        lambda analysis, _: StorageConstraints(),
    )
    around = plans.without_inner(found.with_reasons(captured.kept_branches), nested)
    steps = [
        (traced_name(one.name), FoundStep(one.captured.view, analysis, inside, constraints=asked))
        for one, analysis, asked in zip(
            plans.programs, plans.analyses, plans.constraints, strict=True
        )
    ]
    return FoundStep(captured.view, around, program), steps

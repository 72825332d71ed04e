"""The sums over replicas of a step, sorted: gradients of weights, sparse gradients, others."""

from __future__ import annotations

import collections
import dataclasses

from tf_wu_shard.partial_sums.steps.entries import Entries, entries_in
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.step import Step


@dataclasses.dataclass(frozen=True)
class StepSums:
    """The sums of one step.

    Attributes:
        gradients: For each weight, by key, those of its gradients.
        entries: The sparse gradients.
        others: Those of losses, metrics, counts and statistics.
    """

    gradients: dict[str, list[GradientReduction]]
    entries: list[Entries]
    others: list[GradientReduction]

    @property
    def dense(self) -> list[GradientReduction]:
        """All gradients but sparse ones."""
        return [one for found in self.gradients.values() for one in found]

    @property
    def of_weights(self) -> dict[str, list[GradientReduction]]:
        """All gradients, each sparse one under a name of its own."""
        named = enumerate(self.entries)
        sparse = {f"{one.table}, entries {i}": [*one.parts.values()] for i, one in named}
        return {**self.gradients, **sparse}


def sums_of(step: Step) -> StepSums:
    """Sorts the sums of a step.

    Args:
        step: The step.
    """
    gradients: dict[str, list[GradientReduction]] = collections.defaultdict(list)
    others: list[GradientReduction] = []
    for reduction in step.reductions:
        if reduction.gathered is not None:
            continue
        key = step.weight_of(reduction)
        (gradients[key] if key in step.captured.variables else others).append(reduction)
    return StepSums(dict(gradients), entries_in(step.view, step.reductions), others)

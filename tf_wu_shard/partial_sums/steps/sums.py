"""The sums over replicas of a step, sorted: gradients of weights, sparse gradients, others."""

from __future__ import annotations

import collections
import dataclasses

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.partial_sums.steps.entries import Entries, entries_in
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import ASSIGN
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
    overwrites = _overwrites(step.view)
    for reduction in step.reductions:
        if reduction.gathered is not None:
            continue
        key = step.weight_of(reduction)
        is_gradient = key in step.captured.variables and not any(
            _is_made_of_sums(step.view, op, reduction) for op in overwrites[key]
        )
        (gradients[key] if is_gradient else others).append(reduction)
    return StepSums(dict(gradients), entries_in(step.view, step.reductions), others)


def _overwrites(view: GraphView) -> dict[str, list[Op]]:
    """By a variable's key, the ops that give it a value whatever it was."""
    found: dict[str, list[Op]] = collections.defaultdict(list)
    for op in view:
        if op.type == ASSIGN and op.inputs[0].op in view.variables:
            found[view.variables[op.inputs[0].op].key].append(op)
    return found


def _is_made_of_sums(view: GraphView, write: Op, reduction: GradientReduction) -> bool:
    """Whether a sum becomes a variable's value, and no variable has a part in that.

    A statistic that takes the place of the last one does. A gradient changes what a weight was, or
    a slot.
    """

    def before(value: Value) -> tuple[Value, ...]:
        return () if value in reduction.results else view.producer(value).inputs

    values = [*reachable([write.inputs[1]], before)]
    reads = any(view.producer(value).type == READ for value in values)
    return not reads and not {*values}.isdisjoint(reduction.results)

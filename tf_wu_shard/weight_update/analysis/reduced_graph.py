"""A graph and the gradients that its replicas reduce: where the analysis looks for updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.replicas import Replicas
from tf_wu_shard.step.copies_in_all_processes import CopiesInAllProcesses
from tf_wu_shard.step.gradients import ResultNames, result_names
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.replica_matching import ReplicaMatcher
from tf_wu_shard.step.single_program import SingleProgram


@dataclasses.dataclass(frozen=True)
class ReducedGraph:
    """A graph and its reduced gradients.

    Attributes:
        view: The graph.
        reductions: Its gradient reductions.
        names: Every name of a reduced gradient.
        handles: For each mirrored variable with a component on every replica, its handles by
            replica.
        replicas: Who reduces them.
    """

    view: GraphView
    reductions: tuple[GradientReduction, ...]
    names: ResultNames
    handles: Mapping[str, Mapping[int, str]]
    replicas: Replicas

    @classmethod
    def of(
        cls, view: GraphView, reductions: tuple[GradientReduction, ...], replicas: Replicas
    ) -> ReducedGraph:
        """Looks up what the names and handles are."""
        handles = _mirrored_handles(view, len(replicas.local))
        return cls(view, reductions, result_names(view, reductions), handles, replicas)

    @property
    def devices(self) -> tuple[str, ...]:
        """Per copy of an update, its device."""
        return self.replicas.devices

    def is_trainable(self, key: str) -> bool:
        """Whether the model trains a mirrored variable."""
        handles = self.handles.get(key, {}).values()
        return any(self.view.variables[handle].trainable for handle in handles)

    def matcher(self) -> ReplicaMatcher:
        """What proves that the replicas compute the same, which has looked at nothing yet."""
        if not self.replicas.run_one_program:
            return ReplicaMatcher(self.view, self.names)
        one_program = SingleProgram(self.view, self.names, self.replicas.total)
        if len(self.devices) == 1:
            return one_program
        return CopiesInAllProcesses(self.view, self.names, one_program)


def _mirrored_handles(view: GraphView, num_replicas: int) -> dict[str, dict[int, str]]:
    handles: dict[str, dict[int, str]] = {}
    for op, ref in view.variables.items():
        if ref.mirrored and ref.num_replicas == num_replicas and ref.shape is not None:
            handles.setdefault(ref.key, {})[ref.replica] = op
    return handles

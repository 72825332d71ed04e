"""A step that was read and analysed, wherever it came from, as frozen data."""

from __future__ import annotations

import dataclasses

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.weight_update.analysis.types import Analysis
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

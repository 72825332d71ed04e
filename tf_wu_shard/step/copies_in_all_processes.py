"""Proof that copies of an update agree which several processes hold, some each.

Within a process the copies are matched op by op. That they are what the copies of other processes
are follows from what enters them, as it does for one program that all replicas run.
"""

from __future__ import annotations

from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.replica_matching import ReplicaMatcher
from tf_wu_shard.step.single_program import SingleProgram


class CopiesInAllProcesses(ReplicaMatcher):
    """Matches this process's copies, and follows one of them to all that enters it."""

    def __init__(
        self,
        view: GraphView,
        results: dict[Value, tuple[int, int]],
        one_program: SingleProgram,
    ) -> None:
        """Prepares to match.

        Args:
            view: The graph.
            results: As `ReplicaMatcher` takes them.
            one_program: Proves that one copy is the same in all processes.
        """
        super().__init__(view, results)
        self._one_program = one_program

    def match(self, replica: int, first: str, other: str) -> Refusal | None:
        """See `ReplicaMatcher.match`; `first` must also be the same in all processes."""
        return super().match(replica, first, other) or self._one_program.match(0, first, first)

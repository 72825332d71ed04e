"""What of a bucket travels at once: nothing that waits for something which travels with it.

An update may need several gradients, one of which is computed with what another has written (a slot
that the second loss reads, say), and one weight may be written with what was read of another that
had just been written. So may the weight itself, where a step updates it several times.

The *turn* of an exchange is how many reads of weights already written at most come one after the
other on the way to it. What waits for a gathered weight does so by way of such a read, which makes
its turn a later one. So in each turn gradients are reduce-scattered first, in the order in which
their sums come one after the other, and sums over shards added up, each after those before it; then
weights are gathered, for which nothing of that turn waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.order import marked_behind
from tf_wu_shard.weight_update.analysis.types import WeightUpdate
from tf_wu_shard.weight_update.plan.types import ShardingPlan, VariablePlan
from tf_wu_shard.weight_update.rewrite.weight_reads import Reads, reads_by_time


class CollectiveSchedule:
    """When the exchanges of a step come."""

    def __init__(self, view: GraphView, plan: ShardingPlan) -> None:
        """Looks at the whole step once.

        Args:
            view: The graph.
            plan: What is to be done.
        """
        self._view = view
        keys = {key for update in plan.updates for key in update.reductions}
        marked = {name for key in keys for name in plan.reductions[key].carriers}
        self._reads: dict[str, Mapping[int, Reads]] = {}
        for variable in plan.variables:
            self._reads |= self._reads_of(variable.update)
        late = {
            op.name
            for reads in self._reads.values()
            for time, own in reads.items()
            if time
            for op in own.ops
        }
        self._reads_behind = marked_behind(view, late)
        self._behind = marked_behind(view, marked | late)

    def _reads_of(self, update: WeightUpdate) -> dict[str, Mapping[int, Reads]]:
        body = {op.ops[0] for op in update.body}
        return {w.key: reads_by_time(self._view, w.handles[0], body) for w in update.weights}

    def gradients(
        self, bucket: Sequence[VariablePlan]
    ) -> Iterable[list[tuple[GradientReduction, AnyLayout]]]:
        """The gradients of a bucket that travel at once, of one type, each with how it is cut."""
        found: dict[tuple[int, ...], list[tuple[GradientReduction, AnyLayout]]] = {}
        for variable in bucket:
            for own in variable.reductions:
                when = (*self.of_gradient(own), own.dtype)
                found.setdefault(when, []).append((own, variable.layout))
        return found.values()

    def of_gradient(self, reduction: GradientReduction) -> tuple[int, int]:
        """The turn of a gradient, and its place in that turn; what has the same travels at once."""
        operands = [operand.op for operand in reduction.operands]
        return self.after(operands), max(self._behind[name] for name in operands)

    def reads(self, weight: str) -> Mapping[int, Reads]:
        """The reads of a weight by what its update does not make, see `reads_by_time`."""
        return self._reads[weight]

    def after(self, ops: Iterable[str]) -> int:
        """The turn of what waits for old ops, by name."""
        return max((self._reads_behind[name] for name in ops), default=0)

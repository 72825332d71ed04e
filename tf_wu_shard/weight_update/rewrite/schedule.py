"""What of a bucket travels at once: nothing that waits for something which travels with it.

An update may need several gradients, one of which is computed with what another has written (a slot
that the second loss reads, say), and one weight may be written with what was read of another that
had just been written, or with what was read of itself, where a step updates it several times.

The *turn* of an exchange is how many reads of weights already written, and waits for such writes,
at most come one after the other on the way to it. What waits for a gathered weight does so by way
of one of these, which makes its turn a later one. So in each turn gradients are reduce-scattered
first, in the order in which their sums come one after the other, and sums over shards added up,
each after those before it; then weights are gathered, for which nothing of that turn waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.variable_values import VariableValue
from tf_wu_shard.weight_update.analysis.order import marked_behind
from tf_wu_shard.weight_update.analysis.owned_updates import written
from tf_wu_shard.weight_update.analysis.types import WeightUpdate
from tf_wu_shard.weight_update.plan.types import ShardingPlan, VariablePlan
from tf_wu_shard.weight_update.rewrite.weight_versions import read_beside


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
        self._read: dict[str, Sequence[VariableValue]] = {}
        for variable in plan.variables:
            self._read |= self._read_of(variable.update)
        values = (value for own in self._read.values() for value in own)
        late = {read.name for value in values if value.write for read in value.reads}
        assigned: dict[str, Set[str]] = {}
        for variable in plan.variables:
            assigned |= _assigned(variable)
        self._reads_behind = marked_behind(view, late, assigned)
        self._behind = marked_behind(view, marked | late, assigned)

    def _read_of(self, update: WeightUpdate) -> dict[str, Sequence[VariableValue]]:
        body = {op.ops[0] for op in update.body}
        return {w.key: read_beside(self._view, w.handles[0], body) for w in update.weights}

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

    def read(self, weight: str) -> Sequence[VariableValue]:
        """The values of a weight that others than its update read, see `read_beside`."""
        return self._read[weight]

    def after(self, ops: Iterable[str]) -> int:
        """The turn of what waits for old ops, by name."""
        return max((self._reads_behind[name] for name in ops), default=0)


def _assigned(variable: VariablePlan) -> dict[str, Set[str]]:
    """The writes in whose place weights are put together and assigned.

    Args:
        variable: What is planned for an update.

    Returns:
        By the write's name, the names of the update's own ops: they have the shard, and wait for
        nothing where they waited for the write.
    """
    update = variable.update
    body = {op.ops[0] for op in update.body}
    found: dict[str, Set[str]] = {}
    for weight in update.weights:
        if weight.key in variable.weights:
            writes = [op.ops[0] for op in update.body if weight.key in written(op)]
            found |= {writes[after - 1]: body for after in weight.versions}
    return found

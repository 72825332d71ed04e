"""Sums over a reduced gradient that do not go into the update itself, only into what is outside.

The norm that a step logs, or the means of rows and columns that Adafactor keeps: computed from the
gradient's shards like any other sum of the update.
"""

from __future__ import annotations

from collections.abc import Iterable

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.reachable import reachable
from tf_wu_shard.rules.registry import Family, family_of, is_of_rows
from tf_wu_shard.rules.sparse import BRANCH
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.row_branches import depending


def sums_over_gradients(
    graph: ReducedGraph, keys: Iterable[int], replica: int, *, rows: bool = False
) -> list[Op]:
    """The sums that reduced gradients enter, perhaps through elementwise ops.

    Args:
        graph: The graph.
        keys: Which gradients.
        replica: On which replica.
        rows: Whether they are the values of sparse gradients, which may also pass through ops on
            rows of a table.

    Returns:
        The ops in the order of the view; the i-th of each replica play the same part, if the
        replicas' copies are alike, which is to be proved.
    """
    view = graph.view

    def results(op: Op, operand: int) -> Iterable[Value]:
        """What is still a gradient among what an op makes of one."""
        if family_of(op.type) in (Family.ELEMENTWISE, Family.RELABEL):
            return (op.result_of(operand),)
        if rows and op.type == BRANCH:
            return (Value(op.name, number) for number in depending(view, op, operand))
        return (Value(op.name),) if rows and is_of_rows(op.type) and operand == 0 else ()

    gradients = reachable(
        (value for key in keys for value in graph.names.of(key, replica)),
        lambda value: [made for taker in view.consumers(value) for made in results(*taker)],
    )
    takers = (taker for value in gradients for taker in view.consumers(value))
    sums = {op.name: op for op, i in takers if family_of(op.type) is Family.SUM and i == 0}
    return sorted(sums.values(), key=lambda op: op.position)

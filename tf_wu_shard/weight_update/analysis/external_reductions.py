"""Sums over a reduced gradient that do not go into the update itself, only into what is outside.

The norm that a step logs, or the means of rows and columns that Adafactor keeps: computed from the
gradient's shards like any other sum of the update.
"""

from __future__ import annotations

from collections.abc import Iterable

from tf_wu_shard.graph.op import Op, Value
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
    stack = [value for key in keys for value in graph.names.of(key, replica)]
    seen = set(stack)
    found: dict[str, Op] = {}
    while stack:
        for op, slot in view.consumers(stack.pop()):
            family = family_of(op.type)
            if family is Family.SUM and slot == 0:
                found[op.name] = op
                continue
            results: Iterable[Value] = ()
            if family in (Family.ELEMENTWISE, Family.RELABEL):
                results = (op.result_of(slot),)
            elif rows and op.type == BRANCH:
                results = (Value(op.name, number) for number in depending(view, op, slot))
            elif rows and is_of_rows(op.type) and slot == 0:
                results = (Value(op.name),)
            fresh = [value for value in results if value not in seen]
            seen.update(fresh)
            stack += fresh
    return sorted(found.values(), key=lambda op: op.position)

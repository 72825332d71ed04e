"""Sums over a reduced gradient that do not go into the update itself, only into what is outside.

The norm that a step logs, or the means of rows and columns that Adafactor keeps: computed from the
gradient's shards like any other sum of the update.
"""

from __future__ import annotations

from collections.abc import Iterable

from tf_wu_shard.analysis.gradients import ResultNames
from tf_wu_shard.graph.view import GraphView, Op, Value
from tf_wu_shard.rules.registry import Family, family_of


def sums_over_gradients(
    view: GraphView, names: ResultNames, keys: Iterable[int], replica: int
) -> list[Op]:
    """The sums that reduced gradients enter, perhaps through elementwise ops.

    Args:
        view: The graph.
        names: Every name of a reduced gradient.
        keys: Which gradients.
        replica: On which replica.

    Returns:
        The ops in the order of the view; the i-th of each replica play the same part, if the
        replicas' copies are alike, which is to be proved.
    """
    stack = [value for key in keys for value in names.of(key, replica)]
    seen = set(stack)
    found: dict[str, Op] = {}
    while stack:
        for op, slot in view.consumers(stack.pop()):
            family = family_of(op.type)
            if family is Family.SUM and slot == 0:
                found[op.name] = op
            elif family in (Family.ELEMENTWISE, Family.RELABEL):
                result = Value(op.name, slot if op.type == "IdentityN" else 0)
                if result not in seen:
                    seen.add(result)
                    stack.append(result)
    return sorted(found.values(), key=lambda op: op.position)

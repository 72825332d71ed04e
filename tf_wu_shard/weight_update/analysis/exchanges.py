"""Where updates need what other replicas have, and which of these places wait for each other.

The sums over shards, and the matrix functions. Of those of which none is behind another, all may
share one exchange; of two of which one is behind the other, the first would wait for the second.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.weight_update.analysis.types import MatrixFunction, WeightUpdate


def function_ops(update: WeightUpdate, function: MatrixFunction) -> tuple[str, ...]:
    """The names of the ops of a matrix function."""
    run = update.body[function.first : function.first + function.count]
    return tuple(op.ops[0] for op in run)


def exchanges(updates: Sequence[WeightUpdate]) -> list[tuple[str, ...]]:
    """The ops of each exchange, by name: every copy of every sum, and the matrix functions."""
    found: list[tuple[str, ...]] = []
    for update in updates:
        found += [(name,) for op in update.body if op.sum is not None for name in op.ops]
        found += [function_ops(update, function) for function in update.functions]
    return found


def steps_behind(view: GraphView, points: Sequence[Collection[str]]) -> list[int]:
    """For each point of a graph, how many others at most stand one behind the other on the way.

    What waits for all of one point may share an exchange with what has as many behind it.

    Args:
        view: The graph.
        points: For each its ops, which are done together, by name.

    Returns:
        The numbers. Of a point that waits for itself, by way of ops outside of it, and of whatever
        waits for such a point, the number is larger than that of all points.
    """
    number_of = {name: number for number, names in enumerate(points) for name in names}
    steps = [0] * len(points)
    sources = [(op.name, op.sources) for op in view]
    # The ops of a point need not be neighbours: what comes after the first may enter the last.
    for _ in range(len(points) + 2):
        found = list(steps)
        before: dict[str, int] = {}
        for name, entering in sources:
            own = number_of.get(name)
            step = max((before[s] for s in entering if number_of.get(s, -1) != own), default=0)
            if own is not None:
                found[own] = max(found[own], step)
                step = found[own] + 1
            before[name] = step
        if found == steps:
            break
        steps = found
    return steps

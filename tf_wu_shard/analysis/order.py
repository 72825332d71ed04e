"""When gradients become ready, and which of them wait for the updates of others.

A step may update some weights and compute further gradients with what came of it. Such gradients
cannot travel together: the first would wait for the second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from tf_wu_shard.analysis.types import GradientReduction
from tf_wu_shard.graph.view import GraphView


def with_order(
    view: GraphView, reductions: tuple[GradientReduction, ...], updating: Set[int]
) -> tuple[GradientReduction, ...]:
    """Notes each reduction's place in the order of the step.

    Args:
        view: The graph.
        reductions: Its gradient reductions.
        updating: Keys of those that updates are made of; no other makes anybody wait.

    Returns:
        The reductions, with `depth` and `ready`.
    """
    carriers = {name for r in reductions if r.key in updating for name in r.carriers}
    places: dict[str, int] = {}
    depths: dict[str, int] = {}
    for place, op in enumerate(view):
        places[op.name] = place
        before = max((depths[v.op] for v in op.inputs), default=0)
        before = max((before, *(depths[name] for name in op.controls)))
        depths[op.name] = before + (op.name in carriers)
    return tuple(
        dataclasses.replace(
            r,
            depth=max(depths[operand.op] for operand in r.operands),
            ready=max(places[operand.op] for operand in r.operands),
        )
        for r in reductions
    )

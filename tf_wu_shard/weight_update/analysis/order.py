"""When gradients become ready, and which of them wait for the updates of others.

A step may update some weights and compute further gradients with what came of it. Such gradients
cannot travel together: the first would wait for the second.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Set

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.reductions import GradientReduction


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
    depths = marked_behind(view, {n for r in reductions if r.key in updating for n in r.carriers})
    return tuple(
        dataclasses.replace(
            r,
            depth=max(depths[operand.op] for operand in r.operands),
            ready=max(view.ops[operand.op].position for operand in r.operands),
        )
        for r in reductions
    )


def marked_behind(view: GraphView, marked: Set[str]) -> dict[str, int]:
    """How many of some ops come one after the other on the way to each op, it included.

    What has as many behind it waits for none of the others of its kind by way of a marked op.

    Args:
        view: The graph.
        marked: The names of the ops that count.

    Returns:
        The numbers, by op.
    """
    behind = dict.fromkeys(view.ops, 0)
    first = min((view.ops[name].position for name in marked), default=len(behind))
    for op in itertools.islice(view, first, None):
        before = 0
        for value in op.inputs:
            if behind[value.op] > before:
                before = behind[value.op]
        for name in op.controls:
            if behind[name] > before:
                before = behind[name]
        behind[op.name] = before + (op.name in marked)
    return behind

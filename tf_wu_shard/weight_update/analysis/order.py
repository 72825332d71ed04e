"""When gradients become ready, and which of them wait for the updates of others.

A step may update some weights and compute further gradients with what came of it. Such gradients
cannot travel together: the first would wait for the second.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Set

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.reductions import GradientReduction

_NONE: Mapping[str, Set[str]] = {}


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


def marked_behind(
    view: GraphView, marked: Set[str], waited_for: Mapping[str, Set[str]] = _NONE
) -> dict[str, int]:
    """How many of some ops come one after the other on the way to each op, it included.

    What has as many behind it waits for none of the others of its kind by way of a marked op.

    Args:
        view: The graph.
        marked: The names of the ops that count.
        waited_for: More of them, which count behind whatever has a control edge from them, but not
            where only certain ops have: by name, the names of these.

    Returns:
        The numbers, by op.
    """
    behind = dict.fromkeys(view.ops, 0)
    counted = (*marked, *waited_for)
    first = min((view.ops[name].position for name in counted), default=len(behind))
    for op in itertools.islice(view, first, None):
        before = 0
        for value in op.inputs:
            if behind[value.op] > before:
                before = behind[value.op]
        for name in op.controls:
            count = behind[name]
            if name in waited_for and op.name not in waited_for[name]:
                count += 1
            if count > before:
                before = count
        behind[op.name] = before + (op.name in marked)
    return behind

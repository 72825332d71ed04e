"""Where the matrix functions of updates are computed that live in shards.

Functions of one program, whose tensors are cut alike, form a stack. The replicas take turns
with its whole tensors: each has as many, so that a stack is filled up to a multiple of them, with
copies of its first one. Whatever that one is, so are its copies: a loop over them ends, and what
they yield is not looked at.

Or every replica computes all of them, out of gathered tensors, and cuts its own shards of what they
yield; nothing travels on the way back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tf_wu_shard.layout import AnyLayout, of_size
from tf_wu_shard.weight_update.analysis.types import Analysis


@dataclasses.dataclass(frozen=True)
class StackPlan:
    """Matrix functions that are computed together.

    Attributes:
        updates: For each of them, the position of its update in the analysis.
        functions: For each, which matrix function of that update it is.
        each: How many of them every replica computes.
        by_turns: Whether these are its own; else they are all, on every replica.
    """

    updates: tuple[int, ...]
    functions: tuple[int, ...]
    each: int
    by_turns: bool

    @property
    def members(self) -> tuple[tuple[int, int], ...]:
        """The functions: the position of the update in the analysis, and which of it."""
        return tuple(zip(self.updates, self.functions, strict=True))

    def turns(self, num_replicas: int) -> tuple[tuple[int, int], ...]:
        """The members, filled up to as many for each replica, the first replica's first."""
        missing = self.each * num_replicas - len(self.updates)
        return (*self.members, *self.members[:1] * missing)


def plan_stacks(
    analysis: Analysis, chosen: Iterable[tuple[int, Sequence[AnyLayout]]]
) -> tuple[StackPlan, ...]:
    """Decides who computes which function.

    One must not wait for another of its stack: all have as many others behind them, and so have
    their gradients. By turns a replica computes `ceil(K / N)` of K functions, and receives as many
    tensors for each that enters or comes of them; else it computes K, and receives K for each that
    enters. A matrix function costs far more than to move its tensors, so that the
    number computed decides; of one function alone every replica computes one either way, and
    gathering moves less.

    Args:
        analysis: What was found.
        chosen: The updates to share, each by its position, with how its tensors are cut, one layout
            for each of their sizes.

    Returns:
        The stacks, in the order of the updates.
    """
    alike: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for number, layouts in chosen:
        update = analysis.updates[number]
        depth = max(analysis.reductions[key].depth for key in update.reductions)
        for place, function in enumerate(update.functions):
            moved = (*function.inputs, *function.results)
            cuts = tuple(of_size(layouts, value.size) for value in moved)
            kind = (function.program, function.step, depth, cuts)
            alike.setdefault(kind, []).append((number, place))
    return tuple(_stack(members, analysis.num_replicas) for members in alike.values())


def _stack(members: list[tuple[int, int]], num_replicas: int) -> StackPlan:
    updates, functions = zip(*members, strict=True)
    turns = -(-len(members) // num_replicas)
    by_turns = turns < len(members)
    return StackPlan(updates, functions, turns if by_turns else len(members), by_turns)

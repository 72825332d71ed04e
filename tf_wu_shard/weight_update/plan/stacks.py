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
from tf_wu_shard.weight_update.analysis.types import Analysis, MatrixFunction, WeightUpdate


@dataclasses.dataclass(frozen=True)
class StackMember:
    """One matrix function.

    Attributes:
        update: The update that it is a part of.
        number: Which of its matrix functions it is.
    """

    update: WeightUpdate
    number: int

    @property
    def function(self) -> MatrixFunction:
        """The function."""
        return self.update.functions[self.number]


@dataclasses.dataclass(frozen=True)
class StackPlan:
    """Matrix functions that are computed together.

    Attributes:
        members: The functions.
        each: How many of them every replica computes.
        by_turns: Whether these are its own; else they are all, on every replica.
    """

    members: tuple[StackMember, ...]
    each: int
    by_turns: bool

    def turns(self, num_replicas: int) -> tuple[StackMember, ...]:
        """The members, filled up to as many for each replica, the first replica's first."""
        missing = self.each * num_replicas - len(self.members)
        return (*self.members, *self.members[:1] * missing)


def plan_stacks(
    analysis: Analysis, chosen: Iterable[tuple[WeightUpdate, Sequence[AnyLayout]]]
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
        chosen: The updates to share, each with how its tensors are cut, one layout for each of
            their sizes.

    Returns:
        The stacks, in the order of the updates.
    """
    alike: dict[tuple[object, ...], list[StackMember]] = {}
    for update, layouts in chosen:
        depth = max(reduction.depth for reduction in analysis.reductions_of(update))
        for number, function in enumerate(update.functions):
            moved = (*function.inputs, *function.results)
            cuts = tuple(of_size(layouts, value.size) for value in moved)
            kind = (function.program, function.step, depth, cuts)
            alike.setdefault(kind, []).append(StackMember(update, number))
    return tuple(_stack(members, analysis.num_replicas) for members in alike.values())


def _stack(members: list[StackMember], num_replicas: int) -> StackPlan:
    turns = -(-len(members) // num_replicas)
    by_turns = turns < len(members)
    return StackPlan(tuple(members), turns if by_turns else len(members), by_turns)

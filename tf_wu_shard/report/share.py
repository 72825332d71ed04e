"""How much of a step's update is sharded, and what holds most of the rest back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.refusals import KINDS, Kind, Refusal, refusal_from
from tf_wu_shard.weight_update.plan.types import ShardingPlan

# Sharing less than this is a warning.
LEAST = 0.5


@dataclasses.dataclass(frozen=True)
class Share:
    """How much of a quantity is sharded, out of all of it."""

    sharded: int
    total: int

    @property
    def fraction(self) -> float:
        """From 0 to 1; 1 of nothing."""
        return self.sharded / self.total if self.total else 1.0

    def __add__(self, other: Share) -> Share:
        return Share(self.sharded + other.sharded, self.total + other.total)


NONE = Share(0, 0)


@dataclasses.dataclass(frozen=True)
class LeftAloneVariable:
    """A variable whose update stays as it was.

    Attributes:
        name: Its name.
        reason: Why.
        where: The op at which the reason was found, or "".
        cure: What lifts the reason; "" where nothing is known to.
        elements: How many elements it has, with those of the weights that are updated together with
            it; 0 where nothing shows it.
        kind: The name of the kind of reason, such as "no_rule"; docs/refusals.md has all of them.
        detail: The values in the reason's sentence, by name, such as {"op_type": "Sort"}.
    """

    name: str
    reason: str
    where: str
    cure: str = ""
    elements: int = 0
    kind: str = ""
    detail: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def is_small(self) -> bool:
        """Whether it is only too small to be worth it."""
        return self.is_of(*refusals.SMALL)

    @property
    def is_meant_to_stay(self) -> bool:
        """Whether nobody would want it shared: it is small, or keeps a mean that is no update."""
        return self.is_small or (self.is_of(refusals.Updates.NOT_TRAINABLE) and not self.elements)

    def is_of(self, *kinds: Kind) -> bool:
        """Whether its reason is of one of some kinds."""
        return KINDS.get(self.kind) in kinds

    @property
    def refusal(self) -> Refusal:
        """Its reason as it was found, but for what else stands in the way.

        Raises:
            ValueError: If it is of no kind that the catalogue has.
        """
        return refusal_from(
            {"kind": self.kind, "where": self.where, "detail": self.detail, "besides": []}
        )


def left_alone(name: str, refusal: Refusal, elements: int = 0) -> LeftAloneVariable:
    """A variable that is left alone for a reason.

    Args:
        name: Its name.
        refusal: The reason.
        elements: See `LeftAloneVariable`.
    """
    return LeftAloneVariable(
        name,
        refusal.reason,
        refusal.where,
        refusal.cure,
        elements,
        refusal.kind.key,
        dict(refusal.detail),
    )


@dataclasses.dataclass(frozen=True)
class HeldBack:
    """What holds most of an update back: variables that one cure would lift, or one reason names.

    Attributes:
        variables: How many variables it holds back.
        elements: How many elements they have.
        largest: The name of the largest of them.
        reason: Why that one is left alone.
        where: The op at which that was found, or "".
        cure: What lifts it, or "".
        line: The line of the program that made the op, such as "train.py:50 in step"; "" where
            nothing shows it.
        kind: The name of the kind of reason.
    """

    variables: int
    elements: int
    largest: str
    reason: str
    where: str
    cure: str
    line: str = ""
    kind: str = ""


def held_back(left_alone: Iterable[LeftAloneVariable], share: float) -> HeldBack | None:
    """Finds what holds most elements back.

    What is too small to share, or no weight, is meant to be left alone: it counts where less than
    half is shared. What is empty holds nothing back.

    Args:
        left_alone: All variables that are left alone.
        share: The share of the others, from 0 to 1.

    Returns:
        What holds most back; None where nothing is left alone that counts.
    """
    alike: dict[str, list[LeftAloneVariable]] = {}
    for left in left_alone:
        if not left.is_of(refusals.Plan.EMPTY) and (share < LEAST or not left.is_meant_to_stay):
            alike.setdefault(left.cure or left.reason, []).append(left)
    if not alike:
        return None
    # A variable may be refused more than once: it counts once.
    groups = [{left.name: left for left in group}.values() for group in alike.values()]
    most = max(groups, key=lambda group: sum(left.elements for left in group))
    largest = max(most, key=lambda left: left.elements)
    return HeldBack(
        variables=len(most),
        elements=sum(left.elements for left in most),
        largest=largest.name,
        reason=largest.reason,
        where=largest.where,
        cure=largest.cure,
        kind=largest.kind,
    )


def elements_of(plan: ShardingPlan) -> dict[str, int]:
    """The elements that each update is about, by the name that it is reported by.

    Args:
        plan: What is done to a step. A refused gradient of which no variable is known has its own
            size.
    """
    found: dict[str, int] = {}
    for update in plan.all_updates:
        size = sum(math.prod(weight.shape) for weight in update.reported_weights)
        if not update.variables:
            size = sum(plan.reductions[key].size or 0 for key in update.reductions)
        found.setdefault(update.name, size)
    return found


def shares(plan: ShardingPlan) -> tuple[Share, Share]:
    """How much of an update a plan shares.

    Args:
        plan: What is done to a step.

    Returns:
        The share of the elements and that of the slots' bytes.
    """
    names = {variable.variable for variable in plan.variables}
    sizes = elements_of(plan)
    cut = {slot.variable for slot in plan.in_shards}
    slots = {
        slot.key: math.prod(slot.shape) * item_bytes(slot.dtype)
        for update in plan.all_updates
        for slot in update.reported_slots
    }
    return (
        Share(sum(sizes[name] for name in names), sum(sizes.values())),
        Share(sum(size for key, size in slots.items() if key in cut), sum(slots.values())),
    )

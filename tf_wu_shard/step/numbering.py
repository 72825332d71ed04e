"""Numbers for what values mean, which a graph and the functions that it calls share."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import NamedTuple

# Of so many calls it is worked out what they make; functions that call each other twice, and so on,
# come to more than can be.
_MOST_CALLS = 200


class NumberOfArgument(NamedTuple):
    """The number that an argument of a called function has where it is called."""

    number: int


@dataclasses.dataclass(frozen=True)
class Numbering:
    """The numbers that were given so far.

    Attributes:
        by_meaning: What has which number.
        by_call: What functions make, by the call, see `copy_values`.
        within: The calls that this is in, outermost first, each an op and the function.
    """

    by_meaning: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    by_call: dict[Hashable, list[Hashable]] = dataclasses.field(default_factory=dict)
    within: tuple[tuple[str, str], ...] = ()

    def number(self, meaning: Hashable) -> int:
        """The number of what means this, a new one if nothing did before."""
        return self.by_meaning.setdefault(meaning, len(self.by_meaning))

    def inside(self, call: tuple[str, str]) -> Numbering:
        """The same numbers, for what a call does: an op, and the function that it calls."""
        return dataclasses.replace(self, within=(*self.within, call))

    def is_within(self, function: str) -> bool:
        """Whether this is what a function does, or what is called there."""
        return any(function == caller for _, caller in self.within)

    @property
    def has_many_calls(self) -> bool:
        """Whether it would take too long to look into further ones."""
        return len(self.by_call) > _MOST_CALLS

"""Where the elements of a value are, seen from one replica, and why an answer may be "no".

The placements are those of updates cut into elements; for tables cut at rows, `analysis.row_lies`
has others. Refusals come from everywhere between a dialect and the planner. Pure data: no
TensorFlow, no graphs.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias


@dataclasses.dataclass(frozen=True)
class Replicated:
    """Every replica holds the whole value, and all hold the same one."""

    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Sharded:
    """Replica `i` holds shard `i` of the value, whose layout its size decides.

    Attributes:
        shape: The logical shape of the whole value; a cut is of its row-major elements.
    """

    shape: tuple[int, ...]


class Combine(enum.Enum):
    """What is done with the parts that replicas hold of a value."""

    SUM = "added up"
    MAX = "the largest of them taken"
    MIN = "the smallest of them taken"


@dataclasses.dataclass(frozen=True)
class Partial:
    """Every replica holds what it found over its own shard; all of that combined is the value.

    Attributes:
        shape: The shape of the value.
        combine: How they are combined.
    """

    shape: tuple[int, ...]
    combine: Combine = Combine.SUM


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A reason not to shard, and the place it was found: an answer, not an error.

    Attributes:
        where: The op or variable at which the analysis stopped.
        reason: What was not understood, or would not pay; readable after "because".
        of_rules: Whether nothing but the rules for shards stopped: no rule names the op, or the
            rule does not hold there. A replica that holds everything whole could go on.
        cure: What lifts it, readable after "lifted by"; "" where nothing is known to.
    """

    where: str
    reason: str
    of_rules: bool = dataclasses.field(default=False, compare=False)
    cure: str = dataclasses.field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.reason} ({self.where})" if self.where else self.reason


Placement: TypeAlias = Replicated | Sharded | Partial

"""Where the elements of a value are, seen from one replica. Pure data.

The placements are those of updates cut into elements; tables cut at rows have others, in
`weight_update.analysis.row_placement`.
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


Placement: TypeAlias = Replicated | Sharded | Partial

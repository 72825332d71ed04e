"""Where the elements of a value are, seen from one replica. Pure data.

An update is cut into elements, or, where a sparse gradient feeds it, at whole rows of its table:
then each replica has the entries of the gradient that name its rows, in their order.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeAlias


class Cut(enum.Enum):
    """What an update is cut into."""

    ELEMENTS = "elements"
    ROWS = "rows"


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
        shape: The logical shape of the value.
        combine: How they are combined.
        of: The logical shape of what it is a sum of; -1 for how many entries of a gradient.
        axes: The axes of that which it is summed over, counted from the front.
        dtype: The element type of both, as a DataType number.
    """

    shape: tuple[int, ...]
    combine: Combine
    of: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: int


class What(enum.Enum):
    """What a value is whose table is cut at whole rows."""

    TABLE = "a table of the variables' rows"
    ENTRIES = "one row for each entry"
    ROWS = "the number of each entry's row"
    PLACES = "for each entry, its row's place in a list of rows without repetitions"
    SIZES = "the shape of something with a row for each entry"
    COUNT = "how many entries there are"
    TABLE_SHAPE = "the shape of the table"
    NUM_ROWS = "how many rows the table has"


@dataclasses.dataclass(frozen=True)
class RowPlacement:
    """Every replica holds the rows of its shard, or what belongs to the entries that name them.

    Attributes:
        what: What the value is.
        entries: Of which list of entries; "" of a table. The op that made it, for one that is not
            the gradient's own.
        into: PLACES: the list without repetitions.
        shape: TABLE: its logical shape, of the variables' rows and any dimensions behind them.
            ENTRIES: the shape of one.
        num_rows: ROWS: how many rows the table has.
    """

    what: What
    entries: str = ""
    into: str = ""
    shape: tuple[int, ...] = ()
    num_rows: int = 0


@dataclasses.dataclass(frozen=True)
class Whole:
    """Whoever computes the value has the whole of it, and nobody else has any.

    That is the one replica that owns its update, or each in its turn, where only some of an update
    needs whole tensors. No rule takes it: what is computed with it is computed there.
    """


# What rules know of.
Placement: TypeAlias = Replicated | Sharded | Partial | RowPlacement

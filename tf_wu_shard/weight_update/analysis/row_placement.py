"""Where the values of an update lie whose table is cut at whole rows: the words its rules speak."""

from __future__ import annotations

import dataclasses
import enum


def all_entries(key: int) -> str:
    """The list of all entries of a gradient.

    Args:
        key: The reduction of its values.
    """
    return f"all entries of gradient {key}"


class What(enum.Enum):
    """What a value is that depends on the shard."""

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
    """Where a value lies.

    Attributes:
        what: What it is.
        entries: Of which list of entries; "" of a table. The op that made it, for one that is not
            the gradient's own.
        into: PLACES: the list without repetitions.
        shape: TABLE: its logical shape, of the variables' rows and any dimensions behind them.
            ENTRIES: the shape of one.
    """

    what: What
    entries: str = ""
    into: str = ""
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class RowBranch:
    """How the branches of an op that calls one of two functions are done on rows.

    One is done by each replica on its own rows. The other needs the table and the entries as a
    whole: where it is taken, all that it needs is put together, and each replica has those of its
    entries that name its rows.

    Attributes:
        local: The attribute that names the function which is done on rows.
        whole: The one that names the other function; "" where both are done on rows.
        operands: What each operand behind the first is; None of what every replica holds.
        results: What each result is.
    """

    local: str
    whole: str
    operands: tuple[RowPlacement | None, ...]
    results: tuple[RowPlacement, ...]

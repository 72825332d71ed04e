"""A table cut at whole rows and lists of entries that name its rows, with NumPy.

What a shard has of a value follows from the value's placement alone, as `own` spells it out: rows
are runs, the last of them shorter or empty; entries are those that name the shard's rows, in their
order; numbers of rows count from the shard's first one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tf_wu_shard.layout import RowLayout, row_layout
from tf_wu_shard.placement import RowPlacement, What

# The list of all entries of the gradient, and of its rows without repetitions.
ALL, ONCE = "all", "once"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table's cut, and the entries that name its rows.

    Attributes:
        layout: The cut.
        entries: For each list of entries, the row that each of them names.
    """

    layout: RowLayout
    entries: Mapping[str, np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        """The table's shape."""
        return self.layout.shape

    def with_list(self, name: str, rows: np.ndarray) -> Table:
        """The same with another list of entries."""
        return dataclasses.replace(self, entries={**self.entries, name: rows})

    def own(self, value: np.ndarray, placement: RowPlacement, shard: int) -> np.ndarray:
        """What a shard has of a value."""
        start, stop = self.layout.rows(shard)
        what = placement.what
        if what is What.TABLE:
            return value[start:stop]
        if what is What.TABLE_SHAPE:
            return np.array([stop - start, *value[1:]], value.dtype)
        if what is What.NUM_ROWS:
            return np.array(stop - start, value.dtype)
        mine = self._names_own(placement.entries, shard)
        if what is What.SIZES:
            return np.array([mine.sum(), *value[1:]], value.dtype)
        if what is What.COUNT:
            return np.array(mine.sum(), value.dtype)
        if what is What.ROWS:
            return value[mine] - np.asarray(start, value.dtype)
        if what is What.PLACES:
            places = np.cumsum(self._names_own(placement.into, shard)) - 1
            return places[value[mine]].astype(value.dtype)
        return value[mine]

    def _names_own(self, entries: str, shard: int) -> np.ndarray:
        """Of each entry of a list, whether it names a row of the shard."""
        start, stop = self.layout.rows(shard)
        rows = self.entries[entries]
        return (rows >= start) & (rows < stop)


def tables(
    random: np.random.Generator, shape: tuple[int, ...], item_bytes: int, *, aligned: bool
) -> list[Table]:
    """Cuts of a table over random numbers of replicas, each with entries that name its rows.

    Some rows are named often and half of them never, so that shards have unlike shares.

    Args:
        random: Where random numbers come from.
        shape: The table's shape.
        item_bytes: Bytes of the narrowest element that is computed with.
        aligned: Whether shards begin only where the cuts of updates do, at 64-byte boundaries;
            kernels that approximate round by the place in a vector register.
    """
    found = []
    for number in random.integers(2, 7, 2):
        layout = row_layout(shape, int(number), item_bytes)
        if not aligned:
            # Anything from an even cut to one whose first shard holds it all.
            most = int(random.integers(-(-shape[0] // int(number)), shape[0] + 1))
            layout = RowLayout(shape, int(number), most * layout.row_elements)
        named = random.integers(0, -(-shape[0] // 2), int(random.integers(1, 40)))
        rows = random.permutation(shape[0])[named]
        once = rows[np.sort(np.unique(rows, return_index=True)[1])]
        found.append(Table(layout, {ALL: rows, ONCE: once}))
    return found


def table_shapes(random: np.random.Generator) -> list[tuple[int, ...]]:
    """Shapes of tables of every rank, no dimension like another."""
    few, some, many = (int(n) for n in random.choice(np.arange(3, 12), 3, replace=False))
    return [(16 * many + 1,), (some + 12, few), (16 * few, 16), (many + 12, few, 2 * some)]

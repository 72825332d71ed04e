"""How a table is cut whose gradient names the rows that it touches.

A *row* layout is a flat one whose boundaries are whole rows: shard `i` is the `i`-th run of rows.
So an update that looks rows up, or scatters into them, is local to one shard, and a shard is a
table too, of fewer rows. What holds of a flat layout holds of it: no padding, boundaries at
multiples of 64 bytes.
"""

from __future__ import annotations

import dataclasses
import math

from tf_wu_shard.layout.flat import ALIGNMENT_BYTES, Layout


@dataclasses.dataclass(frozen=True)
class RowLayout(Layout):
    """A cut of a table into runs of whole rows; `shard_size` counts elements, as in `Layout`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shape or self.row_elements == 0 or self.shard_size % self.row_elements:
            raise ValueError(
                f"shards of {self.shard_size} elements do not cut {self.shape} into whole rows"
            )

    @property
    def row_elements(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape[1:])

    def rows(self, shard: int) -> tuple[int, int]:
        """The half-open range of rows that a shard holds.

        Args:
            shard: Index of the shard.

        Raises:
            IndexError: If there is no such shard.
        """
        start, stop = self.bounds(shard)
        return start // self.row_elements, stop // self.row_elements

    def shard_shape(self, shard: int) -> tuple[int, ...]:
        """The shape of shard `shard`: the table's, with its own number of rows."""
        start, stop = self.rows(shard)
        return (stop - start, *self.shape[1:])

    def __str__(self) -> str:
        pad = f" pad {self.padding}" if self.padding else ""
        return f"table {self.shape[0]}x{self.row_elements}/{self.num_shards}{pad}"


def row_layout(shape: tuple[int, ...], num_shards: int, item_bytes: int) -> RowLayout:
    """Cuts a table into runs of rows as even as 64-byte boundaries allow.

    Args:
        shape: The logical shape, rows first; no dimension is 0.
        num_shards: How many shards to make.
        item_bytes: Bytes of one element.

    Returns:
        The layout. Its longest shard exceeds an even share by less than 16 rows of 4-byte elements.
    """
    lane = max(1, ALIGNMENT_BYTES // item_bytes)
    row = math.prod(shape[1:])
    step = lane // math.gcd(lane, row)
    rows = -(-shape[0] // (num_shards * step)) * step
    return RowLayout(shape, num_shards, rows * row)

"""How one tensor is cut into shards.

Answers, on plain integers: which elements of the logical tensor shard `i` holds, and how long it
is. It knows nothing of graphs, devices or collectives.

A *flat* layout views the tensor in row-major order as one vector and gives shard `i` the `i`-th run
of `shard_size` elements. Runs start on 64-byte boundaries and the last ones are shorter, or empty:
**no shard holds padding**. Both matter for exactness, not only for speed. A vectorised kernel may
round differently in its main loop than in its tail of fewer elements than a vector register holds
(`Pow`, `Exp`, `Rsqrt`); cut at such boundaries, with the last run as short as the tensor ends,
every element is computed by the same loop as in the whole tensor.

A *row* layout views the tensor as a matrix, its dimensions in an order of its own, and gives every
shard as many rows. All shards are of one shape, as a program that runs on every replica needs it,
so the last rows may be **padding**, which holds garbage. It is cut as TPUs store tensors: in tiles
of 8 rows by 128 columns.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

# EIGEN_MAX_ALIGN_BYTES: a CPU tensor that starts on such a boundary of another's buffer shares
# that buffer, one that does not is copied. It is a multiple of every vector register's width.
ALIGNMENT_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Layout:
    """A flat cut of a tensor into `num_shards` runs of at most `shard_size` elements.

    Attributes:
        shape: The logical shape of the whole tensor.
        num_shards: How many shards there are; one per replica of the group.
        shard_size: Elements in the longest shard, the first.
    """

    shape: tuple[int, ...]
    num_shards: int
    shard_size: int

    def __post_init__(self) -> None:
        if self.num_shards < 1:
            raise ValueError(f"num_shards must be at least 1, not {self.num_shards}")
        if self.num_shards * self.shard_size < self.size:
            raise ValueError(
                f"{self.num_shards} shards of {self.shard_size} elements cannot hold"
                f" a tensor of shape {self.shape}"
            )

    @property
    def size(self) -> int:
        """Elements in the logical tensor; also in all shards together."""
        return math.prod(self.shape)

    @property
    def padding(self) -> int:
        """Elements by which `num_shards` shards of `shard_size` exceed the tensor.

        Nothing stores them; they are what the longest shard costs above an even cut, and what
        travels where a collective needs shards of one length.
        """
        return self.num_shards * self.shard_size - self.size

    @property
    def shard_elements(self) -> int:
        """Elements that the longest shard stores."""
        return self.shard_size

    def bounds(self, shard: int) -> tuple[int, int]:
        """The half-open range of row-major elements that shard `shard` holds.

        Args:
            shard: Index of the shard, `0 <= shard < num_shards`.

        Returns:
            `(start, stop)`, `0 <= start <= stop <= size`; empty where the tensor ends before.

        Raises:
            IndexError: If there is no such shard.
        """
        if not 0 <= shard < self.num_shards:
            raise IndexError(f"shard {shard} of {self.num_shards}")
        start = min(shard * self.shard_size, self.size)
        return start, min(start + self.shard_size, self.size)

    def shard_shape(self, shard: int) -> tuple[int]:
        """The shape of shard `shard`: a vector of `stop - start` elements (see `bounds`)."""
        start, stop = self.bounds(shard)
        return (stop - start,)

    def __str__(self) -> str:
        pad = f" pad {self.padding}" if self.padding else ""
        return f"flat {self.size}/{self.num_shards}{pad}"


# A TPU stores the last two dimensions of a 4-byte tensor in tiles of so many rows and columns.
TILE = (8, 128)


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """A cut of a tensor, seen as a matrix, into `num_shards` shards of `shard_rows` rows.

    Attributes:
        shape: The logical shape of the whole tensor.
        order: The dimensions in the order in which the matrix has them, slowest first; the last
            one is its columns, all others together are its rows.
        num_shards: How many shards there are; one per replica of the group.
        shard_rows: Rows of every shard, a multiple of a tile's.
        held: Which run of rows each replica holds: replica `r` the run number `held[r]`.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    num_shards: int
    shard_rows: int
    held: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.shape))):
            raise ValueError(f"{self.order} does not order the dimensions of {self.shape}")
        if sorted(self.held) != list(range(self.num_shards)):
            raise ValueError(f"{self.held} does not give {self.num_shards} replicas a run each")
        if self.padded_rows < self.rows:
            raise ValueError(
                f"{self.num_shards} shards of {self.shard_rows} rows cannot hold a tensor of"
                f" shape {self.shape}"
            )

    @property
    def size(self) -> int:
        """Elements in the logical tensor."""
        return math.prod(self.shape)

    @property
    def columns(self) -> int:
        """Columns of the matrix."""
        return self.shape[self.order[-1]] if self.shape else 1

    @property
    def rows(self) -> int:
        """Rows of the matrix that hold elements."""
        return self.size // self.columns if self.columns else 0

    @property
    def padded_rows(self) -> int:
        """Rows of all shards together."""
        return self.num_shards * self.shard_rows

    @property
    def padding(self) -> int:
        """Elements that all shards together hold beyond the tensor's own."""
        return self.padded_rows * self.columns - self.size

    @property
    def shard_elements(self) -> int:
        """Elements that every shard stores, padding included."""
        return self.shard_rows * self.columns

    @property
    def ordered_shape(self) -> tuple[int, ...]:
        """The shape of the tensor with its dimensions in `order`."""
        return tuple(self.shape[dimension] for dimension in self.order)

    def shard_shape(self, shard: int) -> tuple[int, int]:
        """The shape of every shard.

        Args:
            shard: Which; all are alike.
        """
        if not 0 <= shard < self.num_shards:
            raise IndexError(f"shard {shard} of {self.num_shards}")
        return self.shard_rows, self.columns

    def __str__(self) -> str:
        pad = f" pad {self.padding}" if self.padding else ""
        return f"rows {self.rows}x{self.columns}/{self.num_shards}{pad}"


AnyLayout: TypeAlias = Layout | RowLayout


def tile_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The order in which a TPU keeps the dimensions of a variable of this shape.

    Of all choices of the last dimension, the one that pads the tiles least, and of equals the last
    one; the others keep their order. So libtpu's compiler lays out a program's 4-byte arguments.
    """
    rank = len(shape)
    if rank < 2:
        return tuple(range(rank))

    def padded(order: tuple[int, ...]) -> int:
        *rest, rows, columns = (shape[dimension] for dimension in order)
        tiles = -(-rows // TILE[0]) * -(-columns // TILE[1])
        return math.prod(rest) * tiles

    orders = [(*(d for d in range(rank) if d != last), last) for last in reversed(range(rank))]
    return min(orders, key=padded)


def row_layout(shape: tuple[int, ...], num_shards: int, held: tuple[int, ...]) -> RowLayout:
    """Cuts a tensor into runs of whole tiles of rows.

    Args:
        shape: The logical shape; every dimension known.
        num_shards: How many shards to make.
        held: Which run each replica holds.

    Returns:
        The layout.
    """
    order = tile_order(shape)
    columns = shape[order[-1]] if shape else 1
    rows = math.prod(shape) // columns if columns else 0
    shard_rows = -(-rows // (num_shards * TILE[0])) * TILE[0]
    return RowLayout(shape, order, num_shards, shard_rows, held)


def flat_layout(shape: tuple[int, ...], num_shards: int, item_bytes: int) -> Layout:
    """Cuts a tensor into runs as even as 64-byte boundaries allow.

    Args:
        shape: The logical shape; every dimension known.
        num_shards: How many shards to make.
        item_bytes: Bytes of one element.

    Returns:
        The layout. The longest shard exceeds `size / num_shards` by less than 64 bytes.
    """
    lane = max(1, ALIGNMENT_BYTES // item_bytes)
    shortest = -(-math.prod(shape) // num_shards)
    return Layout(shape, num_shards, -(-shortest // lane) * lane)

"""A tensor cut as TPUs store tensors: in tiles of 8 rows by 128 columns.

A *tile* layout views the tensor as a matrix, its dimensions in an order of its own, and gives every
shard as many rows. All shards are of one shape, as a program that runs on every replica needs it,
so the last rows may be **padding**, which holds garbage. A vector, and a tensor that would be
padded much so, is *flattened*: its elements in order fill rows of 128, so that all padding is at
the end and less than a tile a shard.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

# A TPU stores the last two dimensions of a 4-byte tensor in tiles of so many rows and columns.
TILE = (8, 128)

# Flattening a matrix costs another pass over its gradient and its gathered weight in memory, about
# 20 bytes an element. Padding of a fraction p is sent along, 8 * p bytes an element for both; on a
# v5e an axis' links carry about 100 GB/s and memory 819 GB/s, which makes them even at p = 0.3.
WORTH_FLATTENING = 1.25


@dataclasses.dataclass(frozen=True)
class TileLayout:
    """A cut of a tensor, seen as a matrix, into `num_shards` shards.

    The matrix is cut into runs of `run_rows` rows. Where there are fewer tiles of rows than shards,
    each run is cut once more, into `tile_shards` parts of as many tiles, counted row by row of
    tiles; a shard is then its tiles one above the other. The matrix of a flattened tensor has rows
    of 128 elements, as a TPU stores a vector: seeing one as the other moves nothing.

    Attributes:
        shape: The logical shape of the whole tensor.
        order: The dimensions in the order in which the matrix has them, slowest first; the last
            one is its columns, all others together are its rows, unless it is flattened.
        num_shards: How many shards there are; one per replica of the group.
        run_rows: Rows of every run, a multiple of a tile's.
        held: Which shard each replica holds: replica `r` the shard number `held[r]`, which is part
            number `held[r] % tile_shards` of run number `held[r] // tile_shards`.
        tile_shards: Into how many parts each run is cut.
        flattened: Whether the elements, in the order of the dimensions, fill rows of 128.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    num_shards: int
    run_rows: int
    held: tuple[int, ...]
    tile_shards: int = 1
    flattened: bool = False

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.shape))):
            raise ValueError(f"{self.order} does not order the dimensions of {self.shape}")
        if sorted(self.held) != list(range(self.num_shards)):
            raise ValueError(f"{self.held} does not give {self.num_shards} replicas a shard each")
        if self.num_shards % self.tile_shards or self.run_tiles % self.tile_shards:
            raise ValueError(f"{self.tile_shards} parts do not cut runs of {self.run_tiles} tiles")
        if self.padded_rows < self.rows:
            raise ValueError(
                f"{self.num_runs} runs of {self.run_rows} rows cannot hold a tensor of shape"
                f" {self.shape}"
            )

    @property
    def size(self) -> int:
        """Elements in the logical tensor."""
        return math.prod(self.shape)

    @property
    def columns(self) -> int:
        """Columns of the matrix."""
        if self.flattened:
            return TILE[1]
        return self.shape[self.order[-1]] if self.shape else 1

    @property
    def rows(self) -> int:
        """Rows of the matrix that hold elements; of a flattened tensor's, the last may be short."""
        return -(-self.size // self.columns) if self.columns else 0

    @property
    def num_runs(self) -> int:
        """How many runs of rows the matrix is cut into."""
        return self.num_shards // self.tile_shards

    @property
    def run_tiles(self) -> int:
        """Tiles of a run; whole ones only where `tile_shards` is not 1."""
        return self.run_rows * self.columns // math.prod(TILE) if self.tile_shards > 1 else 0

    @property
    def padded_rows(self) -> int:
        """Rows of all shards together."""
        return self.num_runs * self.run_rows

    @property
    def padding(self) -> int:
        """Elements that all shards together hold beyond the tensor's own."""
        return self.padded_rows * self.columns - self.size

    @property
    def shard_elements(self) -> int:
        """Elements that every shard stores, padding included."""
        return self.run_rows * self.columns // self.tile_shards

    @property
    def stored_elements(self) -> int:
        """Elements of memory that every shard takes: whole rows of tiles."""
        if self.tile_shards > 1:
            return self.shard_elements
        return self.run_rows * -(-self.columns // TILE[1]) * TILE[1]

    @property
    def ordered_shape(self) -> tuple[int, ...]:
        """The shape of the tensor with its dimensions in `order`."""
        return tuple(self.shape[dimension] for dimension in self.order)

    @property
    def bucket_kind(self) -> tuple[int | str, ...]:
        """What is alike in tensors that can travel together.

        They lie side by side: their rows are alike, and where runs are cut, their columns too.
        Flattened ones lie one above the other, in each run, and are all alike.
        """
        if self.flattened:
            return ("flattened",)
        columns = (self.columns,) if self.tile_shards > 1 else ()
        return (self.tile_shards, self.run_rows, *self.ordered_shape[:-1], *columns)

    def shard_shape(self, shard: int) -> tuple[int, int]:
        """The shape of every shard.

        Args:
            shard: Which; all are alike.
        """
        if not 0 <= shard < self.num_shards:
            raise IndexError(f"shard {shard} of {self.num_shards}")
        if self.tile_shards > 1:
            return self.shard_elements // TILE[1], TILE[1]
        return self.run_rows, self.columns

    def __str__(self) -> str:
        pad = f" pad {self.padding}" if self.padding else ""
        if self.flattened:
            return f"tiles {self.size}/{self.num_shards}{pad}"
        parts = f"{self.num_runs}x{self.tile_shards}" if self.tile_shards > 1 else self.num_shards
        return f"rows {self.rows}x{self.columns}/{parts}{pad}"


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


def tile_layout(shape: tuple[int, ...], axes: Sequence[int], held: tuple[int, ...]) -> TileLayout:
    """Cuts a tensor into runs of whole tiles of rows, and these into tiles where rows run out.

    Args:
        shape: The logical shape; every dimension known.
        axes: How many parts are made one after the other; their product is the number of shards.
        held: Which shard each replica holds.

    Returns:
        The layout with the smallest shards; of equals, the one with the most runs of rows. The
        flattened one for a vector, and where those of rows take `WORTH_FLATTENING` times as much
        memory.
    """
    order = tile_order(shape)
    columns = shape[order[-1]] if shape else 1
    rows = math.prod(shape) // columns if columns else 0
    num_shards = math.prod(axes)
    found: list[TileLayout] = []
    for count in range(len(axes), 0, -1):
        runs, parts = math.prod(axes[:count]), math.prod(axes[count:])
        run_rows = -(-rows // (runs * TILE[0])) * TILE[0]
        tiles, rest = divmod(run_rows * columns, math.prod(TILE))
        if parts == 1 or not (columns % TILE[1] or rest or tiles % parts):
            found.append(TileLayout(shape, order, num_shards, run_rows, held, parts))
    by_rows = min(found, key=lambda layout: layout.shard_elements)
    tiles = -(-math.prod(shape) // (num_shards * math.prod(TILE)))
    flat = TileLayout(shape, order, num_shards, tiles * TILE[0], held, flattened=True)
    much = by_rows.stored_elements > WORTH_FLATTENING * flat.stored_elements
    return flat if len(shape) < 2 or much else by_rows

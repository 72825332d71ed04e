"""A tensor cut into runs of its row-major elements.

A *flat* layout views the tensor in row-major order as one vector and gives shard `i` the `i`-th run
of `shard_size` elements. Runs start on 64-byte boundaries and the last ones are shorter, or empty:
**no shard holds padding**. Both matter for exactness, not only for speed. A vectorised kernel may
round differently in its main loop than in its tail of fewer elements than a vector register holds
(`Pow`, `Exp`, `Rsqrt`); cut at such boundaries, with the last run as short as the tensor ends,
every element is computed by the same loop as in the whole tensor.
"""

from __future__ import annotations

import dataclasses
import math

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

    def shard_shape(self, shard: int) -> tuple[int, ...]:
        """The shape of shard `shard`: a vector of `stop - start` elements (see `bounds`)."""
        start, stop = self.bounds(shard)
        return (stop - start,)

    @property
    def holders(self) -> tuple[int, ...]:
        """The shards that hold elements, in order."""
        bounds = [self.bounds(shard) for shard in range(self.num_shards)]
        return tuple(shard for shard, (start, stop) in enumerate(bounds) if start < stop)

    def __str__(self) -> str:
        pad = f" pad {self.padding}" if self.padding else ""
        return f"flat {self.size}/{self.num_shards}{pad}"


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

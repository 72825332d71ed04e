"""How a variable is cut whose update one replica does alone: not at all.

An *owner* layout gives one shard, the owner's, the whole variable in its own shape, and every other
shard nothing. So an op without a rule for shards (a matrix product, an inverse root) finds on the
owner what it finds in the unsharded step. What holds of a flat layout holds of it: no padding.
"""

from __future__ import annotations

import dataclasses
import math

from tf_wu_shard.layout.flat import Layout


@dataclasses.dataclass(frozen=True)
class OwnerLayout(Layout):
    """A variable that one shard holds whole; `shard_size` is the size of the variable.

    Attributes:
        owner: The shard that holds it.
    """

    owner: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.owner < self.num_shards:
            raise ValueError(f"owner {self.owner} is none of {self.num_shards} shards")

    @property
    def padding(self) -> int:
        """0: nobody holds or sends more than the variable."""
        return 0

    def bounds(self, shard: int) -> tuple[int, int]:
        """The owner's are those of the whole variable, all others' are empty; see `Layout`."""
        if not 0 <= shard < self.num_shards:
            raise IndexError(f"shard {shard} of {self.num_shards}")
        return (0, self.size) if shard == self.owner else (0, 0)

    def shard_shape(self, shard: int) -> tuple[int, ...]:
        """The variable's own shape for the owner; for all others one without elements."""
        start, stop = self.bounds(shard)
        return self.shape if stop > start else (0, *self.shape[1:])

    def __str__(self) -> str:
        return f"owner replica {self.owner}"


def owner_layout(shape: tuple[int, ...], num_shards: int, owner: int) -> OwnerLayout:
    """Gives a whole variable to one shard.

    Args:
        shape: Its shape; no dimension is 0.
        num_shards: How many shards there are.
        owner: Which one holds it.

    Raises:
        ValueError: If there is no such shard.
    """
    return OwnerLayout(shape, num_shards, math.prod(shape), owner)

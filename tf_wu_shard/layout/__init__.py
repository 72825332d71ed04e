"""How one tensor is cut into shards, one file for each kind of cut.

Answers, on plain integers: which elements of the logical tensor shard `i` holds, and how long it
is. Nothing here knows of graphs, devices or collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tf_wu_shard.layout.flat import ALIGNMENT_BYTES, Layout, flat_layout
from tf_wu_shard.layout.owner import OwnerLayout, owner_layout
from tf_wu_shard.layout.rows import RowLayout, row_layout
from tf_wu_shard.layout.tiles import TILE, TileLayout, tile_layout, tile_order

__all__ = [
    "ALIGNMENT_BYTES",
    "TILE",
    "AnyLayout",
    "Layout",
    "OwnerLayout",
    "RowLayout",
    "TileLayout",
    "flat_layout",
    "of_size",
    "owner_layout",
    "row_layout",
    "tile_layout",
    "tile_order",
]

AnyLayout: TypeAlias = Layout | TileLayout


def of_size(layouts: Sequence[AnyLayout], size: int) -> AnyLayout:
    """The layout of tensors of a size.

    Args:
        layouts: The layouts of an update, no two of one size; where it is one, all that the update
            has in shards is cut so, be it less than a whole tensor (the entries of some rows).
        size: Elements of a whole tensor.
    """
    if len(layouts) == 1:
        return layouts[0]
    return next(layout for layout in layouts if layout.size == size)

"""Ops that read a variable through its resource handle, and what an op may do to a variable.

What writes variables is in `writes`. On a shard, each op becomes the same op on the shard's own
variable, or, for a weight, whose storage stays whole, the arithmetic that the write stands for.
"""

from __future__ import annotations

import enum

READ = "ReadVariableOp"

# Reads that look at the whole variable; a flat shard cannot serve them.
WHOLE_READS = frozenset(
    {"ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
)


class Access(enum.Enum):
    """What an op does to the variable whose handle it takes."""

    PASSED_ON = "hands on to functions that ignore it"
    READ = "reads"
    LOOK = "looks up parts of"
    WRITE = "writes"
    APPLY = "applies a fused update to"
    PART_WISE = "does to each part what it does to the whole of"
    UNKNOWN = "does something unknown to"

    @property
    def is_read(self) -> bool:
        """Whether the variable is as it was afterwards."""
        return self in (Access.PASSED_ON, Access.READ, Access.LOOK)

    @property
    def is_own_write(self) -> bool:
        """Whether the op itself writes the variable, not a function that it calls."""
        return self in (Access.WRITE, Access.APPLY)

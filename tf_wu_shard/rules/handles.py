"""How many variables an op writes, of whatever table it is."""

from __future__ import annotations

from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.sparse import SPARSE_WRITES
from tf_wu_shard.rules.variables import WRITES


def num_written(op_type: str) -> int:
    """How many of an op's first operands are handles of variables that it writes."""
    if op_type in WRITES:
        return 1
    if op_type in FUSED:
        return FUSED[op_type].num_handles
    return SPARSE_WRITES.get(op_type, 0)

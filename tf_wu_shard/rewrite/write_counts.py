"""How often the body of an update writes each of its variables."""

from __future__ import annotations

import collections

from tf_wu_shard.analysis.types import WeightUpdate
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.sparse import SPARSE_WRITES
from tf_wu_shard.rules.variables import WRITES


def writes_by_variable(update: WeightUpdate) -> collections.Counter[str]:
    """By the variables' keys."""
    writes: collections.Counter[str] = collections.Counter()
    for op in update.body:
        if op.type in WRITES:
            writes[op.variable] += 1
        elif op.type in FUSED:
            writes.update(o.variable for o in op.operands[: FUSED[op.type].num_handles])
        elif op.type in SPARSE_WRITES:
            writes.update(o.variable for o in op.operands[: SPARSE_WRITES[op.type]])
    return writes

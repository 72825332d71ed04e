"""How many replicas compute their gradients at a time, where one processor computes for several.

Sums take gradients in the order of the replicas. Where replicas outnumber the cores, TensorFlow
runs them in any order, and what it ran first waits for replica 0: in the worst case all gradients
of all replicas but one. Begun one after the other, as many replicas' gradients are there as compute
them at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from tf_wu_shard.dtypes import item_bytes
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.weight_update.plan.types import VariablePlan

# So that no core is idle while another ends its replica.
_MORE_THAN_CORES = 1


def replicas_at_a_time(
    variables: Iterable[VariablePlan], replicas: int, preferences: Preferences, cores: int
) -> int:
    """How many replicas compute their gradients at a time.

    Args:
        variables: The sharded updates.
        replicas: How many replicas there are.
        preferences: What holds for replicas of their kind.
        cores: Those that this process may use.

    Returns:
        Their number; 0 where nothing is to be held back.
    """
    limit, at_a_time = preferences.staggered_bytes, cores + _MORE_THAN_CORES
    if limit is None or at_a_time >= replicas:
        return 0
    shared = list(variables)
    # Another device computes for its replica alone.
    if not all("device:cpu:" in d.lower() for v in shared for d in v.update.devices):
        return 0
    held = sum((r.size or 0) * item_bytes(r.dtype) for v in shared for r in v.reductions)
    return at_a_time if held >= limit else 0

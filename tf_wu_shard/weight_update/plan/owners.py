"""Which replica does which of the updates that one replica has to do alone.

The replicas wait for the slowest of them, so their loads are made as even as the largest update
allows: largest first, each to the replica that has least to do so far (Graham, "Bounds on
multiprocessing timing anomalies", 1969: at most 4/3 of the best possible).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tf_wu_shard.weight_update.analysis.types import WeightUpdate


def cost_of(update: WeightUpdate) -> int:
    """What an update costs, in multiply-adds of one matrix product.

    A weight of `n` elements, seen as a matrix with its last dimension as columns, whose smaller
    side is `m`, is multiplied with its own transpose in `n * m` multiply-adds, and so is whatever
    else a matrix function does to it, up to a factor that is alike for all weights. A vector costs
    its elements.

    Args:
        update: The update; its slots cost nothing beside its weights.
    """
    cost = 0
    for weight in update.weights:
        size, columns = math.prod(weight.shape), (weight.shape or (1,))[-1]
        cost += size * min(columns, size // columns)
    return cost


def assign_owners(
    costs: Sequence[int], known: Sequence[int | None], num_replicas: int
) -> list[int]:
    """Gives every update to a replica.

    Args:
        costs: What each update costs.
        known: For each its owner, where it has one already; these are not moved.
        num_replicas: How many replicas there are.

    Returns:
        For each update its owner; of equally loaded replicas the first.
    """
    loads = [0] * num_replicas
    owners = [-1 if owner is None else owner for owner in known]
    for cost, owner in zip(costs, owners, strict=True):
        if owner >= 0:
            loads[owner] += cost
    free = [index for index, owner in enumerate(owners) if owner < 0]
    for index in sorted(free, key=lambda i: -costs[i]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += costs[index]
    return owners

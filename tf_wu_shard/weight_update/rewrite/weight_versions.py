"""What a whole weight is each time that something beside its update may read it.

On shards, some writes of a weight become one assignment of what they make of it, put together. A
weight that others read between two writes has several *versions*, and as many assignments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from tf_wu_shard.graph.op import Value
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable


@dataclasses.dataclass
class WeightVersion:
    """One replica's copy of a version, filled in write by write.

    Attributes:
        after: How many writes of the weight come before it, its own included.
        num_writes: How many of them are its own: those since the version before.
        writes: The names of its own old writes, as far as they were emitted.
        controls: The ops that these waited for.
        idle_reads: The names of old reads of it that nobody looks at.
        shard: What the writes have made of the weight's shard, if they have.
    """

    after: int
    num_writes: int
    writes: list[str] = dataclasses.field(default_factory=list)
    controls: list[str] = dataclasses.field(default_factory=list)
    idle_reads: list[str] = dataclasses.field(default_factory=list)
    shard: Value | None = None


def weight_versions(weight: UpdatedVariable) -> tuple[WeightVersion, ...]:
    """The versions of a weight, none of which has been written."""
    before = (0, *weight.versions[:-1])
    pairs = zip(before, weight.versions, strict=True)
    return tuple(WeightVersion(after, after - earlier) for earlier, after in pairs)


def open_version(versions: Iterable[WeightVersion]) -> WeightVersion:
    """The first version that lacks a write."""
    return next(v for v in versions if len(v.writes) < v.num_writes)

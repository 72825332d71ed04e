"""What a whole weight is each time that something beside its update may read it, and what does.

On shards, some writes of a weight become one assignment of what they make of it, put together. A
weight that others read between two writes has several *versions*, and as many assignments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.step.variable_values import VariableValue, values_of
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


def read_beside(view: GraphView, handle: str, body: Collection[str]) -> list[VariableValue]:
    """The values of a weight that others than its update read, each with those reads alone.

    Args:
        view: The graph.
        handle: Yields the handle of the weight's component.
        body: The names of the ops of its update; others may look at what one of these reads.
    """

    def is_by_others(read: Op) -> bool:
        users = (op.name for op, _ in view.consumers(Value(read.name)))
        return read.name not in body or any(name not in body for name in users)

    values = (
        dataclasses.replace(value, reads=tuple(filter(is_by_others, value.reads)))
        for value in values_of(view, handle).values
    )
    return [value for value in values if value.reads]


def looked_at(view: GraphView, reads: Iterable[Op]) -> bool:
    """Whether anybody looks at what these ops read; what an assignment returns is often ignored."""
    values = [Value(read.name) for read in reads]
    return any(view.consumers(value) or value in view.outputs for value in values)


def idle_reads(view: GraphView, handle: str, own: Collection[str]) -> dict[int, list[str]]:
    """Reads of a whole weight that nobody looks at, such as what a write returns.

    Args:
        view: The graph.
        handle: Yields the handle of the weight's component.
        own: The names of the ops of its update, whose reads are not meant.

    Returns:
        Their names, by the number of the value that they read.
    """
    return {
        value.number: [
            read.name
            for read in value.whole_reads
            if read.name not in own and not looked_at(view, [read])
        ]
        for value in values_of(view, handle).values
    }

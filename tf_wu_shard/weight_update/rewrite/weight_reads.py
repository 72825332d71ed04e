"""Which reads of a weight that lives in shards need it whole, and what it travels in for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.step.accesses import accesses
from tf_wu_shard.weight_update.plan.types import SlotPlan, VariablePlan


def wire_dtype(variable: VariablePlan, weight: SlotPlan) -> int:
    """What a weight travels in; others than the update's first one in their own type."""
    return variable.gather_dtype if weight.variable == variable.variable else weight.dtype


class Reads(NamedTuple):
    """Reads of a weight between the same two writes.

    Attributes:
        ops: The reads.
        after: The write before them, by name; () where there is none. Nothing else that they wait
            for matters to what they see.
    """

    ops: list[Op]
    after: tuple[str, ...]


def reads_by_time(view: GraphView, handle: str, body: set[str]) -> dict[int, Reads]:
    """The reads of a weight that the update does not make, by how many writes come before them."""
    found: dict[int, Reads] = {}
    writes: list[str] = []
    for access in accesses(view, handle):
        if not access.access.is_read:
            writes.append(access.op.name)
        elif access.op.name not in body or _is_read_by_others(view, access.op, body):
            own = found.setdefault(len(writes), Reads([], tuple(writes[-1:])))
            own.ops.append(access.op)
    return found


def _is_read_by_others(view: GraphView, read: Op, body: set[str]) -> bool:
    return any(op.name not in body for op, _ in view.consumers(Value(read.name)))


def looked_at(view: GraphView, reads: list[Op]) -> bool:
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
        Their names, by how many writes come before them.
    """
    found: dict[int, list[str]] = {}
    writes = 0
    for access in accesses(view, handle):
        op, writes = access.op, writes + (not access.access.is_read)
        if op.type == READ and op.name not in own and not looked_at(view, [op]):
            found.setdefault(writes, []).append(op.name)
    return found

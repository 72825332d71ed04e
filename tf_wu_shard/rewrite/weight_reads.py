"""Which reads of a weight that lives in shards need it whole, and what it travels in for them."""

from __future__ import annotations

from tf_wu_shard.analysis.accesses import accesses
from tf_wu_shard.graph.view import GraphView, Op, Value
from tf_wu_shard.plan.types import SlotPlan, VariablePlan


def wire_dtype(variable: VariablePlan, weight: SlotPlan) -> int:
    """What a weight travels in; others than the update's first one in their own type."""
    return variable.gather_dtype if weight.variable == variable.variable else weight.dtype


def reads_by_time(view: GraphView, handle: str, body: set[str]) -> dict[int, list[Op]]:
    """The reads of a weight that the update does not make, by how many writes come before them."""
    found: dict[int, list[Op]] = {}
    writes = 0
    for access in accesses(view, handle):
        if not access.access.is_read:
            writes += 1
        elif access.op.name not in body or _is_read_by_others(view, access.op, body):
            found.setdefault(writes, []).append(access.op)
    return found


def _is_read_by_others(view: GraphView, read: Op, body: set[str]) -> bool:
    return any(op.name not in body for op, _ in view.consumers(Value(read.name)))


def looked_at(view: GraphView, reads: list[Op]) -> bool:
    """Whether anybody looks at what these ops read; what an assignment returns is often ignored."""
    values = [Value(read.name) for read in reads]
    return any(view.consumers(value) or value in view.outputs for value in values)

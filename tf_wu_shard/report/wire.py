"""Bytes that reach a replica in a step for its gradients and updated weights."""

from __future__ import annotations

import math

from tf_wu_shard.dtypes import FLOAT32, item_bytes
from tf_wu_shard.weight_update.analysis.row_body import weights_by_rows
from tf_wu_shard.weight_update.analysis.types import Operand
from tf_wu_shard.weight_update.plan.types import ShardingPlan


def wire_bytes(plan: ShardingPlan) -> tuple[int, int]:
    """Bytes that reach each replica before and after.

    A ring all-reduce of B bytes over N replicas brings 2 B (N-1)/N to each; a reduce-scatter and
    an all-gather bring B (N-1)/N each (Thakur et al., 2005). So do, on an average of the replicas,
    a reduction to one owner, to whom all others send B, and what the owner sends them.

    Args:
        plan: What is done to a step.
    """
    n = plan.num_replicas
    if n == 0:
        return 0, 0
    sharded = {r.key: v for v in plan.variables for r in v.reductions}
    before = after = 0
    for reduction in plan.reductions:
        count, wire = reduction.size or 0, reduction.dtype
        size = count * item_bytes(wire) * (n - 1) // n
        before += 2 * size
        if reduction.key not in sharded:
            after += 2 * size
            continue
        if wire == FLOAT32:
            wire = sharded[reduction.key].wire_dtype
        after += count * item_bytes(wire) * (n - 1) // n
    for variable in plan.variables:
        narrow = {variable.variable: variable.gather_dtype} if variable.sharded_weights else {}
        by_rows = weights_by_rows(variable.update)
        for weight in (w for w in variable.update.weights if w.key not in by_rows):
            width = item_bytes(narrow.get(weight.key, weight.dtype))
            times = max(1, len(weight.versions))
            after += times * math.prod(weight.shape) * width * (n - 1) // n
    return before, after + _stack_wire(plan)


def _stack_wire(plan: ShardingPlan) -> int:
    """Bytes that reach each replica for the matrix functions of stacks."""
    n, total = plan.num_replicas, 0
    # What enters several stacks travels once: by its updates and where it is in their bodies.
    known: set[tuple[bool, tuple[tuple[str, Operand], ...]]] = set()
    for stack in plan.stacks:
        function = stack.members[0].function
        moved = [*function.results] if stack.by_turns else []
        for place, value in enumerate(function.inputs):
            entering = ((m.update.name, m.function.inputs[place].operand) for m in stack.members)
            key = (stack.by_turns, tuple(entering))
            moved += [] if key in known else [value]
            known.add(key)
        size = sum(value.size * item_bytes(value.dtype) for value in moved)
        total += stack.each * size * (n - 1) // n
    return total

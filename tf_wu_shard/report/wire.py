"""Bytes that reach a replica in a step for its gradients and updated weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tf_wu_shard.dtypes import FLOAT32, item_bytes
from tf_wu_shard.weight_update.analysis.row_body import weights_by_rows
from tf_wu_shard.weight_update.analysis.types import Analysis, Operand
from tf_wu_shard.weight_update.plan.stacks import StackPlan
from tf_wu_shard.weight_update.plan.types import ShardingPlan


def wire_bytes(analysis: Analysis, plan: ShardingPlan) -> tuple[int, int]:
    """Bytes that reach each replica before and after.

    A ring all-reduce of B bytes over N replicas brings 2 B (N-1)/N to each; a reduce-scatter and
    an all-gather bring B (N-1)/N each (Thakur et al., 2005). So do, on an average of the replicas,
    a reduction to one owner, to whom all others send B, and what the owner sends them.

    Args:
        analysis: What was found.
        plan: What is done to it.
    """
    n = analysis.num_replicas
    if n == 0:
        return 0, 0
    sharded = {key: v for v in plan.variables for key in v.reductions}
    before = after = 0
    for reduction in analysis.reductions:
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
        update = analysis.updates[variable.update]
        narrow = {variable.variable: variable.gather_dtype} if variable.sharded_weights else {}
        by_rows = weights_by_rows(update)
        for weight in (w for w in update.weights if w.key not in by_rows):
            width = item_bytes(narrow.get(weight.key, weight.dtype))
            times = max(1, len(weight.versions))
            after += times * math.prod(weight.shape) * width * (n - 1) // n
    return before, after + _stack_wire(analysis, plan.stacks)


def _stack_wire(analysis: Analysis, stacks: Iterable[StackPlan]) -> int:
    """Bytes that reach each replica for the matrix functions of stacks."""
    n, total = analysis.num_replicas, 0
    # What enters several stacks travels once: by its updates and where it is in their bodies.
    known: set[tuple[bool, tuple[tuple[int, Operand], ...]]] = set()
    for stack in stacks:
        functions = [analysis.updates[update].functions[own] for update, own in stack.members]
        moved = [*functions[0].results] if stack.by_turns else []
        for place, value in enumerate(functions[0].inputs):
            entering = (function.inputs[place].operand for function in functions)
            key = (stack.by_turns, tuple(zip(stack.updates, entering, strict=True)))
            moved += [] if key in known else [value]
            known.add(key)
        size = sum(value.size * item_bytes(value.dtype) for value in moved)
        total += stack.each * size * (n - 1) // n
    return total

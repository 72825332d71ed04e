"""Finds the weight updates behind the gradient reductions, by following the data.

From a reduced gradient it floods forward through ops that have a rule to the variables that are
written: the weight and its slots, whatever they are called. From *all* writes of these variables
it then slices backward, so that a second write (AdamW's decay) can not be missed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Set

from tf_wu_shard import cures
from tf_wu_shard.analysis.accesses import accesses, feeds_a_layer
from tf_wu_shard.analysis.body import BodyBuilder
from tf_wu_shard.analysis.floods import Flood, entangled, mirrored_handles, written_keys
from tf_wu_shard.analysis.gradients import ResultNames, SparseParts
from tf_wu_shard.analysis.replicas import ReplicaMatcher
from tf_wu_shard.analysis.row_body import RowBodyBuilder
from tf_wu_shard.analysis.row_branches import depending
from tf_wu_shard.analysis.single_program import SingleProgram
from tf_wu_shard.analysis.types import GradientReduction, RefusedUpdate, WeightUpdate
from tf_wu_shard.dialects.base import Gathered
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.placement import Refusal
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.registry import Family, family_of, no_rule
from tf_wu_shard.rules.sparse import BRANCH, ROW_OPS, SPARSE_WRITES, UNIQUE
from tf_wu_shard.rules.variables import READ, WRITES

_OPEN = (
    "the shape of its gradient is known only when the step runs, and what it updates does not tell"
    " it: it goes through an op that may change it, or to variables of different shapes"
)


def weight_updates(
    view: GraphView,
    reductions: tuple[GradientReduction, ...],
    names: ResultNames,
    devices: tuple[str, ...],
    num_replicas: int,
) -> tuple[tuple[WeightUpdate, ...], tuple[RefusedUpdate, ...]]:
    """Finds every update that a gradient reduction feeds.

    Args:
        view: The graph.
        reductions: Its gradient reductions.
        names: Every name of a reduced gradient, as `gradients.result_names` gives them.
        devices: Per copy of the update in the graph, its device.
        num_replicas: How many replicas run them; more than copies where all run one program.

    Returns:
        The updates that can be sharded, and the refused ones with their reasons. A reduction
        that reaches no variable (a loss, a metric) is in neither.
    """
    handles = mirrored_handles(view, len(devices))
    matcher = (
        ReplicaMatcher(view, names)
        if len(devices) == num_replicas
        else SingleProgram(view, names, num_replicas)
    )
    summed = {(operand, r.carriers[0]) for r in reductions for operand in r.operands}
    floods = [_flood(view, reduction, names, handles, summed) for reduction in reductions]
    claimed = {variable for flood in floods for variable in flood.variables}
    common = (view, matcher, names, handles, devices, claimed)
    builder = BodyBuilder(*common)
    row_builder = RowBodyBuilder(*common, reductions=reductions)
    parts = SparseParts(reductions)
    updates: list[WeightUpdate] = []
    refused: list[RefusedUpdate] = []
    for flood in entangled(floods):
        if not flood.variables:
            continue
        keys = tuple(sorted(parts.with_others(flood.keys)))
        sparse = any(reductions[key].gathered for key in keys)
        chosen = row_builder if sparse else builder
        outcome = flood.refusal or chosen.build(keys, tuple(flood.variables))
        if isinstance(outcome, Refusal):
            if sparse and not outcome.cure:
                outcome = dataclasses.replace(outcome, cure=cures.DENSE)
            trained = [v for v in flood.variables if _is_trainable(view, v, handles)]
            weights = trained or [_likely_weight(view, flood.variables, handles)]
            refused += [RefusedUpdate(weight, keys, outcome) for weight in weights]
        else:
            updates.append(outcome)
    return tuple(updates), tuple(refused)


def _flood(
    view: GraphView,
    reduction: GradientReduction,
    names: ResultNames,
    handles: dict[str, dict[int, str]],
    summed: Set[tuple[Value, str]],
) -> Flood:
    """Follows one reduced gradient, on replica 0, to the variables that are written with it."""
    sparse = reduction.gathered is not None
    variables, refusal = _reach(view, names.of(reduction.key, 0), summed, sparse)
    if reduction.gathered is Gathered.SHAPE:
        # Anything may be made of the table's shape, which is no secret of a shard.
        refusal = None
    elif not sparse and reduction.size is None:
        refusal = Refusal(reduction.carriers[0], _OPEN)
    flood = Flood({reduction.key}, [], refusal)
    pending = variables
    while pending:
        key = pending.pop(0)
        if key in flood.variables:
            continue
        flood.variables.append(key)
        if key not in handles or 0 not in handles[key]:
            flood.refusal = flood.refusal or Refusal(
                key,
                "it is not a mirrored variable with a component on every replica",
                cure=cures.MIRRORED,
            )
            continue
        # A later read of what was just written may carry the update on (Adam reads its moments
        # back). Where it leads elsewhere, the read is simply one from outside.
        written = False
        for access in accesses(view, handles[key][0]):
            written = written or not access.access.is_read
            if written and access.op.type == READ:
                reached, outside = _reach(view, [Value(access.op.name)], summed, sparse)
                if outside is None:
                    pending.extend(reached)
    return flood


def _reach(
    view: GraphView,
    start: Iterable[Value],
    summed: Set[tuple[Value, str]],
    sparse: bool = False,
) -> tuple[list[str], Refusal | None]:
    """The variables written with what is computed from `start`; the first op with no rule.

    What is `summed` over the replicas again, `(value, op that sums)`, is another gradient, even
    where updates are made of such ops as well. What is computed from a `sparse` gradient may also
    pass through ops on rows of a table.
    """
    found: list[str] = []
    refusal: Refusal | None = None
    stack = list(start)
    seen = set(stack)
    returned = set(view.outputs)
    while stack:
        value = stack.pop(0)
        if value in returned:
            refusal = refusal or Refusal(
                value.op,
                "the step returns a value computed from its gradient",
                cure=cures.NOT_LOOKED_INTO,
            )
        for op, slot in view.consumers(value):
            if (value, op.name) in summed:
                continue
            if op.type in WRITES or op.type in FUSED:
                refusal = refusal or _bad_operand(op, slot)
                found.extend(written_keys(view, op))
                continue
            if op.type in SPARSE_WRITES:
                if not sparse:
                    refusal = refusal or no_rule(op.type, op.name)
                found.extend(written_keys(view, op))
                continue
            if sparse and op.type in (*ROW_OPS, BRANCH):
                results = [Value(op.name, i) for i in _row_results(view, op, slot)]
                stack += [v for v in results if v not in seen]
                seen.update(results)
                continue
            if family_of(op.type) is None:
                refusal = refusal or no_rule(op.type, op.name)
                continue
            if family_of(op.type) is Family.SUM:
                # The same on every replica from here on, whatever it goes into.
                continue
            result = Value(op.name, slot if op.type == "IdentityN" else 0)
            if result not in seen:
                seen.add(result)
                stack.append(result)
    return found, refusal


def _row_results(view: GraphView, op: Op, slot: int) -> Iterable[int]:
    """The numbers of the results of an op on rows that depend on one of its operands."""
    if op.type == BRANCH:
        return sorted(depending(view, op, slot))
    return range(2 if op.type == UNIQUE else 1)


def _bad_operand(op: Op, slot: int) -> Refusal | None:
    expected = FUSED[op.type].gradient if op.type in FUSED else 1
    if slot == expected:
        return None
    reason = f"its gradient enters {op.type} as operand {slot}, where an update has something else"
    return Refusal(op.name, reason, cure=cures.other_op(op.type))


def _is_trainable(view: GraphView, key: str, handles: dict[str, dict[int, str]]) -> bool:
    return any(view.variables[handle].trainable for handle in handles.get(key, {}).values())


def _likely_weight(
    view: GraphView, variables: list[str], handles: dict[str, dict[int, str]]
) -> str:
    """What to name a refused update by that reaches no trainable variable: what a layer reads."""
    for key in variables:
        handle = handles.get(key, {}).get(0)
        if handle is None:
            continue
        if feeds_a_layer(view, handle):
            return key
    return variables[0]

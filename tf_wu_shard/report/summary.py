"""Makes the report of one function from what was found in it and planned for it."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping

from tf_wu_shard.dtypes import dtype_name, item_bytes
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.report.report import Bytes, Report, ShardedVariable
from tf_wu_shard.report.share import (
    elements_of,
    held_back,
    left_alone,
    shares,
    slots_of,
    weights_of,
)
from tf_wu_shard.report.wire import wire_bytes
from tf_wu_shard.weight_update.analysis.types import Analysis, UpdatedVariable, WeightUpdate
from tf_wu_shard.weight_update.plan.types import ShardingPlan, VariablePlan

_NOTHING: Mapping[str, Refusal] = {}


def summarize(
    function: str,
    analysis: Analysis,
    plan: ShardingPlan,
    emitted: dict[str, int],
    place: str,
    left_open: Mapping[str, Refusal] = _NOTHING,
) -> Report:
    """Describes what a plan does to a graph.

    Args:
        function: Name of the function.
        analysis: What was found in it.
        plan: What is done to it.
        emitted: How many communication steps of each kind the rewrite emitted, see `Report`.
        place: Where the replicas sit; see `Replicas.place`.
        left_open: See `RewriteResult`.

    Returns:
        The report, without times.
    """
    whole = _whole(plan)
    sharded = tuple(
        shared
        for v in plan.variables
        for shared in _sharded(
            v,
            analysis.updates[v.update],
            whole.get(v.update, ""),
            v.open_because or left_open.get(v.variable),
        )
    )
    sizes = elements_of(analysis)
    left = tuple(left_alone(a.variable, a.refusal, sizes[a.variable]) for a in plan.left_alone)
    elements, slot_bytes = shares(analysis, plan)
    share = min(elements.fraction, slot_bytes.fraction) if sharded else 0.0
    verdict = "nothing sharded"
    if sharded:
        verdict = "partly sharded" if left else "sharded"
    wire_before, wire_after = wire_bytes(analysis, plan)
    return Report(
        function=function,
        verdict=verdict,
        num_replicas=analysis.num_replicas,
        variables=sharded,
        left_alone=left,
        notes=_notes(analysis, plan),
        slot_bytes_per_replica=_slot_bytes(analysis, plan),
        wire_bytes=Bytes(wire_before, wire_after),
        emitted=emitted,
        elements=elements,
        slot_bytes=slot_bytes,
        held_back=held_back(left, share),
        weight_bytes_per_replica=_weight_bytes(analysis, plan),
        place=place,
        compile_update=plan.compile_update,
    )


def _notes(analysis: Analysis, plan: ShardingPlan) -> tuple[str, ...]:
    """What was refused without a variable to name, and what is shared but not stored so."""
    sharded = [analysis.updates[v.update] for v in plan.variables]
    in_shards = {s.variable for s in plan.in_shards}
    read = [
        f"slot {slot.key} stays whole: the step also reads it outside its update"
        for update in sharded
        for slot in update.whole_slots
        if slot.key not in in_shards
    ]
    whole = [
        f"weight {v.variable} stays whole, its slots in shards: {v.whole_because}"
        for v in plan.variables
        if v.whole_because
    ]
    return (*(str(r) for r in analysis.refusals), *read, *whole)


def _slot_bytes(analysis: Analysis, plan: ShardingPlan) -> Bytes:
    """Bytes of all slots that are known, on the fullest replica, before and after."""
    cut = {s.variable: s.layout for s in plan.in_shards}
    return bytes_on_fullest_replica(slots_of(analysis), cut, analysis.num_replicas)


def _weight_bytes(analysis: Analysis, plan: ShardingPlan) -> Bytes:
    """Bytes of all weights of known size, on the fullest replica, before and after."""
    cut = {weight.variable: weight.layout for v in plan.variables for weight in v.sharded_weights}
    weights = [w for u in analysis.updates for w in u.weights if w not in u.whole_slots]
    weights += [w for refused in analysis.refused for w in refused.variables[:1]]
    return bytes_on_fullest_replica(weights, cut, analysis.num_replicas)


def bytes_on_fullest_replica(
    variables: Iterable[UpdatedVariable], cut: Mapping[str, AnyLayout], num_replicas: int
) -> Bytes:
    """Bytes of variables, some of them in shards, on the replica that holds most of them.

    Args:
        variables: The variables; of each its key, shape and dtype count.
        cut: For those in shards, by key, how they are cut.
        num_replicas: How many replicas there are.

    Returns:
        All of them whole, and as they are.
    """
    whole = 0
    # Many variables are cut alike: what a replica holds of each is asked once.
    alike: collections.Counter[tuple[AnyLayout, int]] = collections.Counter()
    before = 0
    for variable in variables:
        width = item_bytes(variable.dtype)
        size = math.prod(variable.shape) * width
        before += size
        layout = cut.get(variable.key)
        if layout is None:
            whole += size
        else:
            alike[layout, width] += 1
    held = (
        sum(_elements(layout, r) * width * count for (layout, width), count in alike.items())
        for r in range(max(1, num_replicas))
    )
    return Bytes(before, whole + max(held))


def _elements(layout: AnyLayout, replica: int) -> int:
    """What a replica stores, padding of rows included."""
    return math.prod(layout.shard_shape(replica))


def _gathered_in(variable: VariablePlan) -> str:
    """What the weight travels in, where that is not its own type."""
    own = [m.dtype for m in variable.sharded_weights if m.variable == variable.variable]
    return dtype_name(variable.gather_dtype) if own not in ([], [variable.gather_dtype]) else ""


def _whole(plan: ShardingPlan) -> dict[int, str]:
    """Where the matrix functions of updates have whole tensors, by the updates' positions."""
    found: dict[int, dict[str, None]] = {}
    for stack in plan.stacks:
        own = f"by turns, {stack.each} of {len(stack.updates)} on each replica"
        for update in stack.updates:
            found.setdefault(update, {})[own if stack.by_turns else "on every replica"] = None
    return {update: "; ".join(texts) for update, texts in found.items()}


def _sharded(
    variable: VariablePlan, update: WeightUpdate, whole: str, left_open: Refusal | None
) -> list[ShardedVariable]:
    """The weight with its slots, and the others that are updated together with it."""
    read = {slot.key for slot in update.whole_slots}
    slots = [*variable.slots, *(m for m in variable.sharded_weights if m.variable in read)]
    first = ShardedVariable(
        name=variable.variable,
        shape=variable.layout.shape,
        dtype=dtype_name(variable.dtype),
        layout=str(variable.layout),
        slots=tuple(s.variable for s in slots),
        bucket=variable.bucket,
        padding=variable.layout.padding,
        gathered_in=_gathered_in(variable),
        whole=whole,
        open_because=str(left_open or ""),
    )
    others = weights_of(update)[1:]
    layouts = {w.key: variable.layout_of(math.prod(w.shape)) for w in others}
    return [
        first,
        *(
            dataclasses.replace(
                first,
                name=w.key,
                shape=w.shape,
                layout=str(layouts[w.key]),
                slots=(),
                padding=layouts[w.key].padding,
            )
            for w in others
        ),
    ]

"""Makes the report of one function from what is planned for it."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from tf_wu_shard.dtypes import dtype_name, item_bytes
from tf_wu_shard.layout import AnyLayout
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.report.report import Bytes, Report, ShardedVariable
from tf_wu_shard.report.share import elements_of, held_back, left_alone, shares
from tf_wu_shard.report.wire import wire_bytes
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable
from tf_wu_shard.weight_update.plan.types import ShardingPlan, VariablePlan

_NOTHING: Mapping[str, Refusal] = {}


def summarize(
    function: str,
    plan: ShardingPlan,
    emitted: dict[str, int],
    place: str,
    left_open: Mapping[str, Refusal] = _NOTHING,
) -> Report:
    """Describes what a plan does to a graph.

    Args:
        function: Name of the function.
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
            whole.get(v.variable, ""),
            v.open_because or left_open.get(v.variable),
        )
    )
    sizes = elements_of(plan)
    left = tuple(left_alone(a.variable, a.refusal, sizes[a.variable]) for a in plan.left_alone)
    elements, slot_bytes = shares(plan)
    share = min(elements.fraction, slot_bytes.fraction) if sharded else 0.0
    verdict = "nothing sharded"
    if sharded:
        verdict = "partly sharded" if left else "sharded"
    wire_before, wire_after = wire_bytes(plan)
    return Report(
        function=function,
        verdict=verdict,
        num_replicas=plan.num_replicas,
        variables=sharded,
        left_alone=left,
        notes=_notes(plan),
        slot_bytes_per_replica=_slot_bytes(plan),
        wire_bytes=Bytes(wire_before, wire_after),
        emitted=emitted,
        elements=elements,
        slot_bytes=slot_bytes,
        held_back=held_back(left, share),
        weight_bytes_per_replica=_weight_bytes(plan),
        place=place,
        compile_update=plan.compile_update,
    )


def _notes(plan: ShardingPlan) -> tuple[str, ...]:
    """What was refused without a variable to name, and what is shared but not stored so."""
    in_shards = {s.variable for s in plan.in_shards}
    slots = [slot.key for v in plan.variables for slot in v.update.whole_slots]
    read = _read_elsewhere([key for key in slots if key not in in_shards])
    whole = [
        f"weight {v.variable} stays whole, its slots in shards: {v.whole_because}"
        for v in plan.variables
        if v.whole_because
    ]
    return (*(str(r) for r in plan.refusals), *read, *whole)


def _read_elsewhere(slots: Sequence[str]) -> tuple[str, ...]:
    """Says of slots, by key, that they stay whole as the step shows them, and what lifts that."""
    if not slots:
        return ()
    those = (
        f"slot {slots[0]} stays"
        if len(slots) == 1
        else f"{len(slots)} slots such as {slots[0]} stay"
    )
    return (
        f"{those} whole, put together in each step: the step also reads outside of the update what"
        " is in there; lifted by reading it in a function of its own, traced after this step",
    )


def _slot_bytes(plan: ShardingPlan) -> Bytes:
    """Bytes of all slots that are known, on the fullest replica, before and after."""
    cut = {s.variable: s.layout for s in plan.in_shards}
    slots = (slot for update in plan.all_updates for slot in update.reported_slots)
    return bytes_on_fullest_replica(slots, cut, plan.num_replicas)


def _weight_bytes(plan: ShardingPlan) -> Bytes:
    """Bytes of all weights of known size, on the fullest replica, before and after."""
    cut = {weight.variable: weight.layout for v in plan.variables for weight in v.sharded_weights}
    weights = (weight for update in plan.all_updates for weight in update.reported_weights)
    return bytes_on_fullest_replica(weights, cut, plan.num_replicas)


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


def _whole(plan: ShardingPlan) -> dict[str, str]:
    """Where the matrix functions of updates have whole tensors, by the updates' names."""
    found: dict[str, dict[str, None]] = {}
    for stack in plan.stacks:
        own = "on every replica"
        if stack.by_turns:
            own = f"by turns, {stack.each} of {len(stack.members)} on each replica"
        for member in stack.members:
            found.setdefault(member.update.name, {})[own] = None
    return {update: "; ".join(texts) for update, texts in found.items()}


def _sharded(
    variable: VariablePlan, whole: str, left_open: Refusal | None
) -> list[ShardedVariable]:
    """The weight with its slots, and the others that are updated together with it."""
    read = {slot.key for slot in variable.update.whole_slots}
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
        compiled="" if left_open else variable.compiled,
        open_because=str(left_open or ""),
    )
    others = variable.update.reported_weights[1:]
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

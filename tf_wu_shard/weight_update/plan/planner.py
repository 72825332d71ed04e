"""Turns an analysis into a plan: what pays is sharded, everything else is left with its reason."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.cores import usable_cores
from tf_wu_shard.dtypes import BFLOAT16, FLOAT32, item_bytes
from tf_wu_shard.layout import (
    TILE,
    AnyLayout,
    Layout,
    OwnerLayout,
    TileLayout,
    flat_layout,
    of_size,
    owner_layout,
    row_layout,
)
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.row_body import weights_by_rows
from tf_wu_shard.weight_update.analysis.types import Analysis, UpdatedVariable, WeightUpdate
from tf_wu_shard.weight_update.plan.buckets import assign_buckets, assign_in_turn
from tf_wu_shard.weight_update.plan.compiling import (
    against_sharing_compiled,
    how_compiled,
    with_compiling,
)
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.owners import assign_owners, cost_of
from tf_wu_shard.weight_update.plan.stacks import plan_stacks
from tf_wu_shard.weight_update.plan.staggering import replicas_at_a_time
from tf_wu_shard.weight_update.plan.types import (
    LeftAlone,
    ShardingPlan,
    SlotPlan,
    VariablePlan,
    main_gradient,
)

_NO_CONSTRAINTS = StorageConstraints()


def make_plan(
    analysis: Analysis,
    options: ShardingOptions,
    preferences: Preferences,
    constraints: StorageConstraints = _NO_CONSTRAINTS,
) -> ShardingPlan:
    """Decides what to shard.

    Args:
        analysis: What the graph holds.
        options: What the user asked for.
        preferences: What holds where the user did not say.
        constraints: What is known of the variables' storage.

    Returns:
        The plan. Every variable with a reduced gradient is in it, sharded or left alone.
    """
    if not preferences.narrow_sums:
        options = dataclasses.replace(options, wire_dtype=None)
    smallest = options.min_elements
    if smallest is None:
        smallest = preferences.min_elements
    several = options.min_elements is None and analysis.num_replicas > 1
    tile = preferences.smallest_shard if several else None
    held = constraints.in_shards
    chosen: list[tuple[WeightUpdate, tuple[AnyLayout, ...]]] = []
    left: list[LeftAlone] = []
    owners = _owners(analysis, smallest, held)
    for update in analysis.updates:
        committed = any(variable.key in held for variable in update.variables)
        refusal = _against(analysis, update, 1 if committed else smallest, tile)
        owner = owners.get(update.name)
        layouts = () if refusal else _layouts(analysis, update, owner, preferences)
        refusal = refusal or _against_cut(update, layouts) or _misfit(update, layouts, held)
        refusal = refusal or _pinned(update, constraints.whole_updates)
        if refusal is None:
            chosen.append((update, layouts))
        else:
            left.append(LeftAlone(update, refusal))
    refusal = _against_step([update for update, _ in chosen], options, preferences)
    if refusal is not None and not held:
        left += [LeftAlone(update, refusal) for update, _ in chosen]
        chosen = []
    left += [LeftAlone(refused, refused.refusal) for refused in analysis.refused]
    travelling = [_travels(analysis, update, layouts[0]) for update, layouts in chosen]
    if preferences.most_buckets is None:
        buckets = assign_buckets(travelling, options.bucket_bytes or preferences.bucket_bytes)
    else:
        ready = [_ready(analysis, update) for update, _ in chosen]
        least, most = preferences.bucket_bytes, preferences.most_buckets
        buckets = assign_in_turn(travelling, ready, least, most, options.bucket_bytes)
    whole = constraints.whole_weights if preferences.weights_in_shards else None
    variables = tuple(
        _variable_plan(analysis, update, layouts, bucket, options, whole)
        for (update, layouts), bucket in zip(chosen, buckets, strict=True)
    )
    compile_update = how_compiled(analysis, options, preferences)
    return ShardingPlan(
        fingerprint=analysis.fingerprint,
        num_replicas=analysis.num_replicas,
        reductions=analysis.reductions,
        variables=with_compiling(variables, compile_update, options, preferences),
        summed_whole=_summed_whole(analysis.reductions, variables),
        left_alone=tuple(left),
        refusals=analysis.refusals,
        stacks=plan_stacks(analysis, chosen),
        compile_update=compile_update,
        at_a_time=replicas_at_a_time(variables, analysis.num_replicas, preferences, usable_cores()),
    )


def _against(
    analysis: Analysis, update: WeightUpdate, smallest: int, tile: int | None = None
) -> Refusal | None:
    # One replica may do the update of weights of several sizes, that of a small one first.
    size = max(math.prod(weight.shape) for weight in update.weights)
    if size == 0:
        return refusals.Plan.EMPTY.at()
    if size < smallest:
        if tile is None:
            return refusals.Plan.TOO_SMALL.at(elements=size, limit=smallest)
        return refusals.Plan.TOO_SMALL_FOR_REPLICAS.at(
            elements=size, limit=smallest, replicas=analysis.num_replicas, tile=tile
        )
    by_rows = bool(_gradient(analysis, update).gathered)
    refusal = against_sharing_compiled(update, by_rows=by_rows)
    if refusal is not None:
        return refusal
    if not update.slots and len(weights_by_rows(update)) == len(update.weights):
        return refusals.Plan.ALL_IS_DONE.at()
    return None


def _against_step(
    updates: Sequence[WeightUpdate], options: ShardingOptions, preferences: Preferences
) -> Refusal | None:
    """Why all that a step could share is too little."""
    limit = options.min_step_elements
    if limit is None:
        limit = preferences.min_step_elements if options.min_elements is None else 1
    elements = sum(math.prod(weight.shape) for update in updates for weight in update.weights)
    if not updates or elements >= limit:
        return None
    return refusals.Plan.STEP_TOO_SMALL.at(elements=elements, limit=limit)


def _pinned(update: WeightUpdate, pinned: Mapping[str, Refusal]) -> Refusal | None:
    for variable in update.variables:
        if variable.key in pinned:
            what = "its slot" if variable.is_slot else "the weight"
            return pinned[variable.key].about(f"{what} {variable.key}")
    return None


def _owners(analysis: Analysis, smallest: int, held: Mapping[str, AnyLayout]) -> dict[str, int]:
    """The owner of each update that one replica does, by the update's name."""
    whole = [
        update
        for update in analysis.updates
        if update.whole and _against(analysis, update, smallest) is None
    ]
    known = []
    for update in whole:
        layouts = [held.get(slot.key) for slot in update.slots]
        found = [layout.owner for layout in layouts if isinstance(layout, OwnerLayout)]
        known.append(found[0] if found else None)
    costs = [cost_of(update) for update in whole]
    owners = assign_owners(costs, known, analysis.num_replicas)
    return {update.name: owner for update, owner in zip(whole, owners, strict=True)}


def _misfit(
    update: WeightUpdate, layouts: Sequence[AnyLayout], held: Mapping[str, AnyLayout]
) -> Refusal | None:
    """Why the update cannot go on in the shards that its variables live in."""
    # What another function has as a slot may be a weight here. Written in parts it may live in any;
    # an owner hands out what its own component holds.
    for slot in update.variables if update.whole else update.slots:
        cut = held.get(slot.key)
        if cut is not None and cut != _slot_plan(slot, layouts).layout:
            return refusals.Plan.CUT_OTHERWISE.at(slot=slot.key, cut=str(cut))
    return None


def _gradient(analysis: Analysis, update: WeightUpdate) -> GradientReduction:
    return main_gradient(analysis.reductions_of(update))


def _layouts(
    analysis: Analysis, update: WeightUpdate, owner: int | None, preferences: Preferences
) -> tuple[AnyLayout, ...]:
    """How the update's tensors are cut, those of the weight's size first."""
    count = analysis.num_replicas
    if owner is not None:
        return (owner_layout(update.variables[0].shape, count, owner),)
    dtype = _gradient(analysis, update).dtype
    # One cut for weight, gradient and slots, though their dtypes may differ: the narrowest decides
    # where the boundaries are aligned for all of them.
    dtypes = [dtype, *(v.dtype for v in update.variables)]
    width = min(item_bytes(d) for d in dtypes)
    if _gradient(analysis, update).gathered:
        return (row_layout(update.variables[0].shape, count, width),)
    # Of variables of one size, all are cut like the first.
    shapes: dict[int, tuple[int, ...]] = {}
    for variable in update.variables:
        shapes.setdefault(math.prod(variable.shape), variable.shape)
    cut = preferences.layout or (lambda shape, width: flat_layout(shape, count, width))
    return tuple(cut(shape, width) for shape in shapes.values())


def _against_cut(update: WeightUpdate, layouts: Sequence[AnyLayout]) -> Refusal | None:
    if not layouts or not isinstance(layouts[0], TileLayout):
        return None
    own = [of_size(layouts, math.prod(variable.shape)) for variable in update.variables]
    for variable, layout in zip(update.variables, own, strict=True):
        if variable.shape != layout.shape:
            other = "the weight" if layout is layouts[0] else "another slot of its size"
            return refusals.Plan.OTHER_SHAPE.at(
                variable=variable.key, other=other, shape=variable.shape
            )
    # A slot of another size may be too small to be cut; what counts is what all of them take.
    held, size = (
        sum(n) for n in zip(*((lay.shard_elements, lay.size) for lay in own), strict=True)
    )
    if held < size:
        return None
    if own[0].num_shards == 1:
        return refusals.Plan.NOTHING_TO_SHARE_WITH.at()
    if len(layouts) > 1:
        return refusals.Plan.CUT_SAVES_NOTHING.at(size=size, held=held)
    held = own[0].num_shards * math.prod(TILE)
    return refusals.Plan.NO_TILE_EACH.at(size=own[0].size, held=held)


def _travels(
    analysis: Analysis, update: WeightUpdate, layout: AnyLayout
) -> tuple[int, tuple[int | str, ...]]:
    """How many bytes of a gradient travel, and what must be alike in what travels with it."""
    reduction = _gradient(analysis, update)
    depth, _ = _ready(analysis, update)
    alike: tuple[int | str, ...] = layout.bucket_kind if isinstance(layout, TileLayout) else ()
    if reduction.gathered:
        alike = ("table", reduction.key)  # each travels alone
    if update.whole:
        alike = ("owner", reduction.key)  # so does each of these
    assert reduction.size is not None, "an update is found where the size of its gradient is known"
    return reduction.size * item_bytes(reduction.dtype), (depth, reduction.dtype, *alike)


def _ready(analysis: Analysis, update: WeightUpdate) -> tuple[int, int]:
    """The place in the step from which on all gradients of an update are there."""
    return max((r.depth, r.ready) for r in analysis.reductions_of(update))


def _variable_plan(
    analysis: Analysis,
    update: WeightUpdate,
    layouts: tuple[AnyLayout, ...],
    bucket: int,
    options: ShardingOptions,
    whole: Mapping[str, Refusal] | None,
) -> VariablePlan:
    """How one update is shared; `whole` is None where all weights stay whole."""
    reductions = analysis.reductions_of(update)
    reasons = [whole[w.key] for w in update.weights if w.key in whole] if whole is not None else []
    in_shards = whole is not None and not reasons
    sharded_weights = update.weights if in_shards else ()
    weight = update.variables[0]
    return VariablePlan(
        update=update,
        reductions=reductions,
        layouts=layouts,
        slots=tuple(_slot_plan(v, layouts) for v in update.slots),
        sharded_weights=tuple(_slot_plan(v, layouts) for v in sharded_weights),
        gather_dtype=_gather_dtype(weight, options) if in_shards else weight.dtype,
        wire_dtype=_wire_dtype(main_gradient(reductions).dtype, layouts[0], options),
        bucket=bucket,
        whole_because=reasons[0] if reasons else None,
    )


def _gather_dtype(weight: UpdatedVariable, options: ShardingOptions) -> int:
    """What a weight travels in from its shards."""
    narrow = options.gather_dtype == "bfloat16" or weight.read_as == BFLOAT16
    return BFLOAT16 if narrow and weight.dtype == FLOAT32 else weight.dtype


def _wire_dtype(dtype: int, layout: AnyLayout, options: ShardingOptions) -> int:
    """What gradients of a type travel in."""
    # Entries of rows are no sums, and what an owner sums it may read where it lies.
    narrow = options.wire_dtype == "bfloat16" and type(layout) is Layout
    return BFLOAT16 if narrow and dtype == FLOAT32 else dtype


def _slot_plan(variable: UpdatedVariable, layouts: Sequence[AnyLayout]) -> SlotPlan:
    layout = own = of_size(layouts, math.prod(variable.shape))
    if isinstance(layout, OwnerLayout):
        own = owner_layout(variable.shape, layout.num_shards, layout.owner)
    elif isinstance(layout, Layout):
        own = dataclasses.replace(layout, shape=variable.shape)
    return SlotPlan(variable.key, own, variable.dtype)


def _summed_whole(
    reductions: tuple[GradientReduction, ...], variables: tuple[VariablePlan, ...]
) -> tuple[GradientReduction, ...]:
    """The reductions that lose their carrier because a sharded gradient travelled with them."""
    sharded = {r.key for v in variables for r in v.reductions}
    lost = {carrier for v in variables for r in v.reductions for carrier in r.carriers}
    return tuple(
        r
        for r in reductions
        if r.key not in sharded and not r.gathered and lost.intersection(r.carriers)
    )

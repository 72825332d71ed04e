"""Checks a plan before anything is done as it says, or reported of it.

A plan that fails is a mistake of the planner, not of the user's step: the error says which promise
was broken, and the graph stays as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.layout import AnyLayout, OwnerLayout, TileLayout
from tf_wu_shard.weight_update.analysis.types import UpdatedVariable
from tf_wu_shard.weight_update.plan.types import ShardingPlan, SlotPlan, VariablePlan


def verify_plan(plan: ShardingPlan) -> None:
    """Checks what the planner promises.

    - Every gradient of a sharded update belongs to it alone, and whatever loses its carrier with
      one is sharded, summed whole, or gathered as ever.
    - No variable is in two updates.
    - Buckets are numbered without gaps, and all in one is cut and typed alike.
    - Every variable is cut for as many replicas as there are, its size has a layout, and what of it
      lives in shards is cut by that; what one replica does belongs to one of the replicas.

    Args:
        plan: The plan.

    Raises:
        WuShardError: If a promise is broken.
    """
    _check_reductions(plan)
    updated = ((u.key, v.variable) for v in plan.variables for u in v.update.variables)
    _owners("variable", updated)
    _check_buckets(plan)
    for variable in plan.variables:
        _check_layouts(variable, plan.num_replicas)
        _check_kept(variable, variable.slots, variable.update.slots)
        if variable.sharded_weights:
            _check_kept(variable, variable.sharded_weights, variable.update.weights)


def _check_reductions(plan: ShardingPlan) -> None:
    if [r.key for r in plan.reductions] != list(range(len(plan.reductions))):
        raise WuShardError("the reductions of the plan are not numbered in order")
    for variable in plan.variables:
        keys = tuple(reduction.key for reduction in variable.reductions)
        if keys != variable.update.reductions:
            raise WuShardError(
                f"{variable.variable} is updated from gradients {variable.update.reductions}, and"
                f" planned with {keys}"
            )
    sharded = [
        (r.key, variable.variable) for variable in plan.variables for r in variable.reductions
    ]
    whole = [(reduction.key, "the sums that stay whole") for reduction in plan.summed_whole]
    summed = _owners("gradient", (*sharded, *whole))
    lost = {carrier for key, _ in sharded for carrier in plan.reductions[key].carriers}
    for reduction in plan.reductions:
        if reduction.gathered or reduction.key in summed:
            continue
        if not lost.isdisjoint(reduction.carriers):
            raise WuShardError(f"gradient {reduction.key} loses its carrier and is not summed")


def _owners(what: str, pairs: Iterable[tuple[int | str, str]]) -> dict[int | str, str]:
    """The owners of things, each given beside its own; none may have two."""
    owners: dict[int | str, str] = {}
    for thing, owner in pairs:
        if thing in owners:
            raise WuShardError(f"{what} {thing} belongs to {owners[thing]} and to {owner}")
        owners[thing] = owner
    return owners


def _check_buckets(plan: ShardingPlan) -> None:
    buckets = plan.buckets
    numbers = [bucket[0].bucket for bucket in buckets]
    if numbers != list(range(len(buckets))):
        raise WuShardError(f"the buckets of the plan are numbered {numbers}")
    for bucket in buckets:
        kinds = {_kind(variable) for variable in bucket}
        if len(kinds) > 1:
            raise WuShardError(f"bucket {bucket[0].bucket} has tensors of {len(kinds)} kinds")


def _kind(variable: VariablePlan) -> tuple[object, ...]:
    layout = variable.layout
    alike = layout.bucket_kind if isinstance(layout, TileLayout) else ()
    return (type(layout), variable.dtype, *alike)


def _check_layouts(variable: VariablePlan, num_replicas: int) -> None:
    for layout in variable.layouts:
        if layout.num_shards != num_replicas:
            raise WuShardError(
                f"{variable.variable} is cut for {layout.num_shards} replicas, and there are"
                f" {num_replicas}"
            )
    if isinstance(variable.layout, OwnerLayout):
        return
    sizes = {layout.size for layout in variable.layouts}
    for updated in variable.update.variables:
        if math.prod(updated.shape) not in sizes:
            raise WuShardError(f"no layout of {variable.variable} is of the size of {updated.key}")


def _check_kept(
    variable: VariablePlan, kept: Iterable[SlotPlan], updated: Iterable[UpdatedVariable]
) -> None:
    planned = {slot.variable: slot for slot in kept}
    shapes = {one.key: one.shape for one in updated}
    if planned.keys() != shapes.keys():
        raise WuShardError(f"{variable.variable} keeps {sorted(planned)}, not {sorted(shapes)}")
    for key, slot in planned.items():
        own = slot.layout
        cut = variable.layout_of(math.prod(shapes[key]))
        if own.shape != shapes[key] or not _are_cut_alike(own, cut):
            raise WuShardError(f"{key} is cut {own}, and its update {cut}")


def _are_cut_alike(one: AnyLayout, other: AnyLayout) -> bool:
    if one == other or one.num_shards != other.num_shards:
        return one == other
    if isinstance(one, OwnerLayout) and isinstance(other, OwnerLayout):
        return one.owner == other.owner
    if isinstance(one, TileLayout) or isinstance(other, TileLayout):
        return False
    return type(one) is type(other) and one.shard_size == other.shard_size

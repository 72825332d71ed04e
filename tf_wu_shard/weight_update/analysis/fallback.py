"""Looks again at updates that were refused for want of a rule, in a way that needs fewer rules.

Their gradients are followed anew, through whatever is computed from them, and their bodies are
built by a builder of that way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.fallback_slice import FallbackSlicer
from tf_wu_shard.weight_update.analysis.forward_slice import ForwardSlice, entangled
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, WeightUpdate


def fall_back(
    graph: ReducedGraph,
    sharded: Sequence[WeightUpdate],
    refused: Sequence[RefusedUpdate],
    builder_of: Callable[[set[str]], BodyBuilder],
) -> tuple[list[WeightUpdate], dict[str, Refusal | None]]:
    """Builds what can be built.

    Args:
        graph: The graph.
        sharded: The updates that can be computed in shards.
        refused: The others.
        builder_of: Makes the builder, given the keys of all variables that a gradient is followed
            to.

    Returns:
        The updates among the refused ones that could be built; and for the variables of which
        only rules stood in the way, the reason against this way as well, or None.
    """
    taken = {key for update in sharded for key in update.reductions}
    wanted = {key for r in refused if r.refusal.of_rules for key in r.reductions} - taken
    slicer = FallbackSlicer(graph)
    dense = [key for key in sorted(wanted) if not graph.reductions[key].gathered]
    slices = [slicer.slice_from(key) for key in dense]
    builder = builder_of({variable for slice_ in slices for variable in slice_.variables})
    in_shards = {v.key for update in sharded for v in update.variables}
    found: list[WeightUpdate] = []
    reasons: dict[str, Refusal | None] = {}
    for slice_ in entangled(slices):
        reached = [r for r in refused if r.variable in slice_.variables]
        if not reached or not all(r.refusal.of_rules for r in reached):
            continue
        outcome = _entanglement(slice_, in_shards) or builder.build(
            tuple(sorted(slice_.keys)), tuple(slice_.variables)
        )
        refusal = outcome if isinstance(outcome, Refusal) else None
        reasons |= dict.fromkeys((r.variable for r in reached), refusal)
        if not isinstance(outcome, Refusal):
            found.append(outcome)
    return found, reasons


def _entanglement(slice_: ForwardSlice, in_shards: set[str]) -> Refusal | None:
    """Why what a gradient reaches cannot be followed as one update, or None."""
    shared = sorted(in_shards.intersection(slice_.variables))
    if shared:
        return refusals.Updates.UPDATED_WITH_ANOTHER.at(shared[0])
    return slice_.refusal


def still_refused(
    refused: Iterable[RefusedUpdate],
    reasons: dict[str, Refusal | None],
    nor: Callable[[Refusal], Refusal],
) -> tuple[RefusedUpdate, ...]:
    """What is left of the refused updates; their reasons also say why the second way is closed.

    Args:
        refused: The refused updates.
        reasons: What `fall_back` found.
        nor: Says of the second way that it is closed, given why.
    """
    left: list[RefusedUpdate] = []
    for one in refused:
        if one.variable not in reasons:
            left.append(one)
        elif (second := reasons[one.variable]) is not None:
            both = one.refusal.beside(nor(second))
            left.append(dataclasses.replace(one, refusal=both))
    return tuple(left)

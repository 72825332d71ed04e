"""Looks again at updates that were refused for want of a rule, in a way that needs fewer rules.

Their gradients are followed anew, to whatever is written with what is computed from them,
and their bodies are built by a builder of that way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.graph.calls import is_call
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.forward_slice import (
    ForwardSlice,
    ForwardSlicer,
    Reached,
    entangled,
    written_keys,
)
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
        builder_of: Makes the builder, given the keys of the variables that no gradient is followed
            to.

    Returns:
        The updates among the refused ones that could be built; and for the variables of which
        only rules stood in the way, the reason against this way as well, or None.
    """
    taken = {key for update in sharded for key in update.reductions}
    wanted = {key for r in refused if r.refusal.of_rules for key in r.reductions} - taken
    slicer = _SlicerThroughAnything(graph)
    dense = [key for key in sorted(wanted) if not graph.reductions[key].gathered]
    slices = slicer.slices_from([graph.reductions[key] for key in dense])
    in_shards = {v.key for update in sharded for v in update.variables}
    claimed = in_shards.union(*(slice_.variables for slice_ in slices))
    builder = builder_of(graph.handles.keys() - claimed)
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


class _SlicerThroughAnything(ForwardSlicer):
    """Follows reduced gradients through whatever is computed from them.

    It stops at nothing but what is no part of one update: single numbers (the norm of a gradient),
    further reductions, and ops with effects.
    """

    def __init__(self, graph: ReducedGraph) -> None:
        super().__init__(graph)
        self._carriers = {name for r in graph.reductions for name in r.carriers}

    def against(self, reduction: GradientReduction, reached: Reached) -> Refusal | None:
        """Nothing: where it goes besides, whole tensors are put together."""
        return None

    def reach(self, start: Iterable[Value], sparse: bool) -> Reached:
        """Follows what is computed from values; another reduction begins a further forward pass."""
        found: list[str] = []
        elsewhere = False
        stack = [value for value in start if self._view.may_have_several(value)]
        seen = set(stack)
        while stack:
            value = stack.pop(0)
            for op, slot in self._view.consumers(value):
                if num_written(op.type):
                    found.extend(written_keys(self._view, op))
                elif op.name in self._carriers:
                    elsewhere = True
                elif self._yields(op):
                    one = op.passes_each_on
                    results = (op.result_of(slot),) if one else self._view.results(op.name)
                    new = [v for v in results if v not in seen and self._view.may_have_several(v)]
                    seen.update(new)
                    stack += new
        unknown = any(0 not in self.graph.handles.get(variable, {}) for variable in found)
        return Reached(found, elsewhere=elsewhere or unknown)

    def _yields(self, op: Op) -> bool:
        """Whether all that comes of an op may be what it yields; calls are looked into later."""
        return is_call(op.type) or not self._view.is_stateful(op.type)

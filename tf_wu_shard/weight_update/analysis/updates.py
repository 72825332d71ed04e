"""Finds the weight updates behind the gradient reductions, by following the data.

From a reduced gradient it slices forward through ops that have a rule to the variables that are
written: the weight and its slots, whatever they are called. From *all* writes of these variables
it then slices backward, so that a second write (AdamW's decay) can not be missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tf_wu_shard import refusals
from tf_wu_shard.refusals import Kind, Refusal
from tf_wu_shard.step.accesses import feeds_a_layer
from tf_wu_shard.step.gradients import SparseParts
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.forward_slice import (
    ForwardSlice,
    ForwardSlicer,
    entangled,
    follow,
)
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.row_body import RowBodyBuilder
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, WeightUpdate


class FoundUpdates(NamedTuple):
    """What is behind gradient reductions.

    Attributes:
        updates: The updates that can be sharded.
        refused: The others, with their reasons.
        beside: Why variables that follow weights are in no update of these.
    """

    updates: tuple[WeightUpdate, ...] = ()
    refused: tuple[RefusedUpdate, ...] = ()
    beside: tuple[Refusal, ...] = ()


def weight_updates(graph: ReducedGraph) -> FoundUpdates:
    """Finds every update that a gradient reduction feeds.

    Args:
        graph: The graph.

    Returns:
        The updates. A reduction that reaches no variable (a loss, a metric) is in none.
    """
    slices = follow(graph)
    outcome_of = _Outcomes(graph, slices)
    updates: list[WeightUpdate] = []
    refused: list[RefusedUpdate] = []
    beside: dict[str, Refusal] = {}
    for slice_ in entangled(slices):
        if not slice_.variables:
            continue
        outcome = outcome_of(slice_)
        found = [(slice_, outcome)]
        if isinstance(outcome, Refusal):
            alone = [(part, outcome_of(part)) for part in _without_followers(graph, slice_)]
            if any(isinstance(own, WeightUpdate) for _, own in alone):
                kept = {variable for part, _ in alone for variable in part.variables}
                beside |= dict.fromkeys((v for v in slice_.variables if v not in kept), outcome)
                found = alone
        for part, own in found:
            if isinstance(own, Refusal):
                trained = [v for v in part.variables if graph.is_trainable(v)]
                weights = trained or [_likely_weight(graph, part.variables)]
                keys = outcome_of.keys(part)
                refused += [RefusedUpdate(weight, keys, own) for weight in weights]
            else:
                updates.append(own)
    return FoundUpdates(tuple(updates), tuple(refused), _left_beside(beside))


class _Outcomes:
    """Builds the updates of slices."""

    def __init__(self, graph: ReducedGraph, slices: Sequence[ForwardSlice]) -> None:
        """Prepares to build.

        Args:
            graph: The graph.
            slices: What each of its gradients reaches.
        """
        reductions, names, matcher = graph.reductions, graph.names, graph.matcher()
        names.broadcast = frozenset(key for one in slices if one.broadcast for key in one.keys)
        unclaimed = graph.handles.keys() - {v for one in slices for v in one.variables}
        self._graph = graph
        self._builder = BodyBuilder(graph, matcher, unclaimed)
        self._row_builder = RowBodyBuilder(graph, matcher, unclaimed)
        self._parts = SparseParts(reductions)

    def __call__(self, slice_: ForwardSlice) -> WeightUpdate | Refusal:
        """The update, or what is against it."""
        keys, reductions = self.keys(slice_), self._graph.reductions
        if not self._graph.names.broadcast.isdisjoint(keys):
            return refusals.Updates.GRADIENT_OF_LARGER.at(reductions[keys[0]].carriers[0])
        sparse = any(reductions[key].gathered for key in keys)
        chosen = self._row_builder if sparse else self._builder
        return slice_.refusal or chosen.build(keys, tuple(slice_.variables))

    def keys(self, slice_: ForwardSlice) -> tuple[int, ...]:
        """The reductions of a slice, those among them of all parts of a sparse gradient."""
        return tuple(sorted(self._parts.with_others(slice_.keys)))


def _without_followers(graph: ReducedGraph, slice_: ForwardSlice) -> list[ForwardSlice]:
    """A slice without what follows its weights, in as many as it then is; none if nothing does.

    What follows a weight, such as its average, can read the whole of it, and may be all that is in
    the way.
    """
    ahead = ForwardSlicer(graph, past_weights=False)
    alone = entangled(ahead.slices_from([graph.reductions[key] for key in sorted(slice_.keys)]))
    variables = {variable for one in alone for variable in one.variables}
    return [one for one in alone if one.variables] if variables < {*slice_.variables} else []


def _left_beside(reasons: Mapping[str, Refusal]) -> tuple[Refusal, ...]:
    """Says for each reason which variables it leaves beside the updates."""
    by_kind: dict[Kind, list[str]] = {}
    for variable, refusal in reasons.items():
        by_kind.setdefault(refusal.kind, []).append(variable)
    found = []
    for first, *others in by_kind.values():
        more = f" and {len(others)} more" if others else ""
        refusal = reasons[first]
        found.append(
            refusals.Updates.FOLLOWS_BESIDE.at(
                refusal.where, variables=first + more, reason=refusal.reason
            )
        )
    return tuple(found)


def _likely_weight(graph: ReducedGraph, variables: list[str]) -> str:
    """What to name a refused update by that reaches no trainable variable: what a layer reads."""
    for key in variables:
        handle = graph.handles.get(key, {}).get(0)
        if handle is not None and feeds_a_layer(graph.view, handle):
            return key
    return variables[0]

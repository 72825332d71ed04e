"""Finds the weight updates behind the gradient reductions, by following the data.

From a reduced gradient it slices forward through ops that have a rule to the variables that are
written: the weight and its slots, whatever they are called. From *all* writes of these variables
it then slices backward, so that a second write (AdamW's decay) can not be missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tf_wu_shard import refusals
from tf_wu_shard.refusals import Kind, Refusal
from tf_wu_shard.step.accesses import feeds_a_layer
from tf_wu_shard.step.gradients import SparseParts
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.forward_slice import ForwardSlicer, entangled, follow
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
    reductions, names, matcher = graph.reductions, graph.names, graph.matcher()
    slices = follow(graph)
    names.broadcast = frozenset(key for slice_ in slices if slice_.broadcast for key in slice_.keys)
    unclaimed = graph.handles.keys() - {v for slice_ in slices for v in slice_.variables}
    ahead = ForwardSlicer(graph, past_weights=False)
    builder = BodyBuilder(graph, matcher, unclaimed)
    row_builder = RowBodyBuilder(graph, matcher, unclaimed)
    parts = SparseParts(reductions)
    updates: list[WeightUpdate] = []
    refused: list[RefusedUpdate] = []
    beside: dict[str, Refusal] = {}
    for slice_ in entangled(slices):
        if not slice_.variables:
            continue
        keys = tuple(sorted(parts.with_others(slice_.keys)))
        sparse = any(reductions[key].gathered for key in keys)
        chosen = row_builder if sparse else builder
        outcome = slice_.refusal or chosen.build(keys, tuple(slice_.variables))
        if isinstance(outcome, Refusal):
            # What follows a weight, such as its average, may be what is in the way; it can read the
            # whole weight.
            own = ahead.slices_from([reductions[key] for key in sorted(slice_.keys)])
            variables = tuple(dict.fromkeys(v for one in own for v in one.variables))
            if len(variables) < len(slice_.variables) and not any(one.refusal for one in own):
                alone = chosen.build(keys, variables)
                if not isinstance(alone, Refusal):
                    followers = (v for v in slice_.variables if v not in variables)
                    beside |= dict.fromkeys(followers, outcome)
                    outcome = alone
        if not names.broadcast.isdisjoint(keys):
            outcome = refusals.Updates.GRADIENT_OF_LARGER.at(reductions[keys[0]].carriers[0])
        if isinstance(outcome, Refusal):
            trained = [v for v in slice_.variables if graph.is_trainable(v)]
            weights = trained or [_likely_weight(graph, slice_.variables)]
            refused += [RefusedUpdate(weight, keys, outcome) for weight in weights]
        else:
            updates.append(outcome)
    return FoundUpdates(tuple(updates), tuple(refused), _left_beside(beside))


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

"""Finds the weight updates behind the gradient reductions, by following the data.

From a reduced gradient it slices forward through ops that have a rule to the variables that are
written: the weight and its slots, whatever they are called. From *all* writes of these variables
it then slices backward, so that a second write (AdamW's decay) can not be missed.
"""

from __future__ import annotations

from tf_wu_shard import refusals
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.step.accesses import feeds_a_layer
from tf_wu_shard.step.gradients import SparseParts
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.forward_slice import entangled, follow
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.row_body import RowBodyBuilder
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, WeightUpdate


def weight_updates(
    graph: ReducedGraph,
) -> tuple[tuple[WeightUpdate, ...], tuple[RefusedUpdate, ...]]:
    """Finds every update that a gradient reduction feeds.

    Args:
        graph: The graph.

    Returns:
        The updates that can be sharded, and the refused ones with their reasons. A reduction
        that reaches no variable (a loss, a metric) is in neither.
    """
    reductions, names, matcher = graph.reductions, graph.names, graph.matcher()
    slices = follow(graph)
    names.broadcast = frozenset(key for slice_ in slices if slice_.broadcast for key in slice_.keys)
    unclaimed = graph.handles.keys() - {v for slice_ in slices for v in slice_.variables}
    builder = BodyBuilder(graph, matcher, unclaimed)
    row_builder = RowBodyBuilder(graph, matcher, unclaimed)
    parts = SparseParts(reductions)
    updates: list[WeightUpdate] = []
    refused: list[RefusedUpdate] = []
    for slice_ in entangled(slices):
        if not slice_.variables:
            continue
        keys = tuple(sorted(parts.with_others(slice_.keys)))
        sparse = any(reductions[key].gathered for key in keys)
        chosen = row_builder if sparse else builder
        outcome = slice_.refusal or chosen.build(keys, tuple(slice_.variables))
        if not names.broadcast.isdisjoint(keys):
            outcome = refusals.Updates.GRADIENT_OF_LARGER.at(reductions[keys[0]].carriers[0])
        if isinstance(outcome, Refusal):
            trained = [v for v in slice_.variables if graph.is_trainable(v)]
            weights = trained or [_likely_weight(graph, slice_.variables)]
            refused += [RefusedUpdate(weight, keys, outcome) for weight in weights]
        else:
            updates.append(outcome)
    return tuple(updates), tuple(refused)


def _likely_weight(graph: ReducedGraph, variables: list[str]) -> str:
    """What to name a refused update by that reaches no trainable variable: what a layer reads."""
    for key in variables:
        handle = graph.handles.get(key, {}).get(0)
        if handle is not None and feeds_a_layer(graph.view, handle):
            return key
    return variables[0]

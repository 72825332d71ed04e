"""Finds the weight updates behind the gradient reductions, by following the data.

From a reduced gradient it slices forward through ops that have a rule to the variables that are
written: the weight and its slots, whatever they are called. From *all* writes of these variables
it then slices backward, so that a second write (AdamW's decay) can not be missed.
"""

from __future__ import annotations

from tf_wu_shard import refusals
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.refusals import Refusal
from tf_wu_shard.replicas import Replicas
from tf_wu_shard.step.accesses import feeds_a_layer
from tf_wu_shard.step.gradients import ResultNames, SparseParts
from tf_wu_shard.step.reductions import GradientReduction
from tf_wu_shard.step.replica_matching import ReplicaMatcher
from tf_wu_shard.step.single_program import SingleProgram
from tf_wu_shard.weight_update.analysis.body import BodyBuilder
from tf_wu_shard.weight_update.analysis.forward_slice import entangled, follow, mirrored_handles
from tf_wu_shard.weight_update.analysis.row_body import RowBodyBuilder
from tf_wu_shard.weight_update.analysis.types import RefusedUpdate, WeightUpdate


def weight_updates(
    view: GraphView,
    reductions: tuple[GradientReduction, ...],
    names: ResultNames,
    replicas: Replicas,
) -> tuple[tuple[WeightUpdate, ...], tuple[RefusedUpdate, ...]]:
    """Finds every update that a gradient reduction feeds.

    Args:
        view: The graph.
        reductions: Its gradient reductions.
        names: Every name of a reduced gradient, as `gradients.result_names` gives them.
        replicas: Who does them.

    Returns:
        The updates that can be sharded, and the refused ones with their reasons. A reduction
        that reaches no variable (a loss, a metric) is in neither.
    """
    handles = mirrored_handles(view, len(replicas.local))
    matcher = (
        SingleProgram(view, names, replicas.total)
        if replicas.run_one_program
        else ReplicaMatcher(view, names)
    )
    slices = follow(view, reductions, names, handles)
    names.broadcast = frozenset(key for slice_ in slices if slice_.broadcast for key in slice_.keys)
    claimed = {variable for slice_ in slices for variable in slice_.variables}
    common = (view, matcher, names, handles, replicas.devices, claimed)
    builder = BodyBuilder(*common)
    row_builder = RowBodyBuilder(*common, reductions=reductions)
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
            trained = [v for v in slice_.variables if _is_trainable(view, v, handles)]
            weights = trained or [_likely_weight(view, slice_.variables, handles)]
            refused += [RefusedUpdate(weight, keys, outcome) for weight in weights]
        else:
            updates.append(outcome)
    return tuple(updates), tuple(refused)


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

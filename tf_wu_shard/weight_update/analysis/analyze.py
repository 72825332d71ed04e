"""The analysis as one call: a view in, frozen findings out. Pure, and without TensorFlow."""

from __future__ import annotations

from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.step.gradient_shapes import ensured_shapes, with_ensured
from tf_wu_shard.step.gradients import gradient_reductions
from tf_wu_shard.weight_update.analysis.kept_slots import with_variables
from tf_wu_shard.weight_update.analysis.matrix_updates import matrix_updates, nobody_takes_turns
from tf_wu_shard.weight_update.analysis.order import with_order
from tf_wu_shard.weight_update.analysis.owned_updates import owned_updates
from tf_wu_shard.weight_update.analysis.reduced_graph import ReducedGraph
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.analysis.unreached import only_weights, written_unreached
from tf_wu_shard.weight_update.analysis.updates import FoundUpdates, weight_updates
from tf_wu_shard.weight_update.analysis.verify import verify_updates


def analyze(view: GraphView, dialect: Dialect) -> Analysis:
    """Finds the gradient reductions of a graph and the weight updates behind them.

    Args:
        view: The graph.
        dialect: Knows how reductions look in it.

    Returns:
        What was found. `num_replicas` is 0 where the graph reduces no gradient.

    Raises:
        WuShardError: If an update is not what it has to be, by a mistake of the analysis.
    """
    replicas = dialect.replicas
    carried, refusals = dialect.recognise(view)
    ensured = ensured_shapes(view, carried)
    view = with_ensured(view, ensured)
    reductions = gradient_reductions(view, carried, ensured)
    graph = ReducedGraph.of(view, reductions, replicas)
    updates, refused, beside = weight_updates(graph) if reductions else FoundUpdates()
    reached = {v.key for u in updates for v in u.variables} | {r.variable for r in refused}
    unreached, untrained = written_unreached(view, graph.names, reached, replicas.devices, refusals)
    refused = (*only_weights(view, refused, unreached, updates), *unreached)
    if dialect.uneven is not None and reductions:
        found = owned_updates(graph, updates, refused)
        updates, refused = (*updates, *found[0]), found[1]
    if dialect.stacks is not None and reductions:
        found = matrix_updates(graph, dialect.stacks, updates, refused)
        updates, refused = (*updates, *found[0]), found[1]
    elif replicas.run_one_program and len(replicas.local) > 1:
        refused = nobody_takes_turns(refused)
    verify_updates(view, updates)
    of_variables = {r.refusal for r in refused}
    return Analysis(
        fingerprint=view.fingerprint,
        num_replicas=replicas.total if reductions else 0,
        reductions=with_order(view, reductions, {key for u in updates for key in u.reductions}),
        updates=updates,
        refused=with_variables(view, updates, refused, graph.names),
        refusals=(*(r for r in refusals if r not in of_variables), *beside),
        untrained=untrained,
    )

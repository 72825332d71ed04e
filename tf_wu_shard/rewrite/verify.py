"""Checks a rewritten graph before anything uses it.

A graph that fails is thrown away and the old one stays; the error says which promise was broken.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from tf_wu_shard.analysis.types import Analysis
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.plan.types import ShardingPlan
from tf_wu_shard.rewrite.rewriter import RewriteResult
from tf_wu_shard.rules.fused import FUSED
from tf_wu_shard.rules.variables import WRITES


def verify(old: GraphView, analysis: Analysis, plan: ShardingPlan, result: RewriteResult) -> None:
    """Checks what a rewrite promises.

    - Every edge has a source. (That there is no cycle is checked by whoever reads the graph next:
      TensorFlow's importer, or a `GraphView`.)
    - Every variable that was written is still written: a sharded weight once per replica, by its
      gathered value; a sharded slot through its shards as often as before; all others by the very
      ops that wrote them.
    - No op that reduced a sharded gradient is left.
    - The graph returns as many values as before.

    Args:
        old: The graph before.
        analysis: What was found in it.
        plan: What was to be done.
        result: The rewritten graph.

    Raises:
        WuShardError: If a promise is broken.
    """
    nodes = list(result.graph_def.node)
    names = {node.name for node in nodes}
    _check_edges(nodes, names, result)
    _check_writes(old, _writes(nodes), analysis, plan, result)
    _check_carriers(names, analysis, plan)
    if len(result.outputs) != len(old.outputs):
        raise WuShardError(f"{len(old.outputs)} outputs became {len(result.outputs)}")


def _check_edges(nodes: list[Any], names: set[str], result: RewriteResult) -> None:
    """No two ops share a name, and every input, output and control output exists."""
    if len(names) != len(nodes):
        raise WuShardError("two ops of the new graph share a name")
    for node in nodes:
        for text in node.input:
            source = text[1:] if text.startswith("^") else text.partition(":")[0]
            if source not in names:
                raise WuShardError(f"{node.name} reads {source}, which is gone")
    for name in (*(v.op for v in result.outputs), *result.control_outputs):
        if name not in names:
            raise WuShardError(f"the graph must yield {name}, which is gone")


def _check_writes(
    old: GraphView,
    after: dict[str, list[str]],
    analysis: Analysis,
    plan: ShardingPlan,
    result: RewriteResult,
) -> None:
    before = _writes(old.graph_def.node)
    sharded_weights = {w for v in plan.variables for w in v.weights}
    sharded_slots = {s.variable for v in plan.variables for s in v.slots}
    for handle, writes in before.items():
        key = old.variables[handle].key if handle in old.variables else handle
        if key in sharded_slots:
            if after.get(handle):
                raise WuShardError(f"slot {key} is still written whole by {after[handle][0]}")
        elif key in sharded_weights:
            expected = result.assigns[key][old.variables[handle].replica]
            if after.get(handle) != [expected]:
                raise WuShardError(f"weight {key} is written by {after.get(handle)}")
        elif after.get(handle) != writes:
            raise WuShardError(f"{key} was written by {writes}, now by {after.get(handle)}")
    handles = {v.key: v.handles for u in analysis.updates for v in u.slots}
    for added in result.shard_inputs:
        count = len(before.get(handles[added.slot][added.replica], ()))
        if len(after.get(added.placeholder, ())) != count:
            raise WuShardError(
                f"shard {added.replica} of {added.slot} is not written {count} times"
            )


def _writes(nodes: Iterable[Any]) -> dict[str, list[str]]:
    """For each handle, the ops that write it, in order."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for node in nodes:
        count = FUSED[node.op].num_handles if node.op in FUSED else int(node.op in WRITES)
        for handle in list(node.input)[:count]:
            found[handle].append(node.name)
    return found


def _check_carriers(names: set[str], analysis: Analysis, plan: ShardingPlan) -> None:
    for variable in plan.variables:
        for key in variable.reductions:
            for carrier in analysis.reductions[key].carriers:
                if carrier in names:
                    raise WuShardError(f"{variable.variable} is still reduced whole by {carrier}")

"""Checks a rewritten graph before anything uses it, and again where parts of it are compiled.

A graph that fails is thrown away and the old one stays; the error says which promise was broken.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.nodes import Edges, edges_of, sources_of
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.rewrite.outlining import Outlined
from tf_wu_shard.weight_update.rewrite.races import races
from tf_wu_shard.weight_update.rewrite.result import RewriteResult


def verify(old: GraphView, plan: ShardingPlan, result: RewriteResult) -> None:
    """Checks what a rewrite promises.

    - Every edge has a source. (That there is no cycle is checked by what reads the graph next:
      TensorFlow's importer, or a `GraphView`.)
    - Every variable that was written is still written: a sharded weight once per replica, by its
      gathered value, but by its owner, if it has one, as it was; a sharded slot through its shards
      as often as before; all others by the very ops that wrote them.
    - What touches a shard does so in an order that edges say, as it did with the variable.
    - No op that reduced a sharded gradient is left.
    - The graph returns as many values as before.

    Args:
        old: The graph before.
        plan: What was to be done.
        result: The rewritten graph.

    Raises:
        WuShardError: If a promise is broken.
    """
    names, after = _check_edges(result.edges, result)
    _check_writes(old, after, plan, result)
    _check_order(result)
    _check_carriers(names, plan)
    if len(result.outputs) != len(old.outputs):
        raise WuShardError(f"{len(old.outputs)} outputs became {len(result.outputs)}")


def verify_outlined(nodes: Iterable[Any], made: Outlined) -> None:
    """Checks what is promised where XLA compiles parts of a graph.

    - Every edge has a source, and no name is given twice.
    - Every handle is written as often as before, be it by an op or in a compiled function.

    Args:
        nodes: The NodeDefs before.
        made: The graph with calls of compiled functions.

    Raises:
        WuShardError: If a promise is broken.
    """
    _, left = _check_edges(edges_of(made.nodes), made)
    before = collections.Counter(
        handle for node in nodes for handle in node.input[: num_written(node.op)]
    )
    after = collections.Counter({handle: len(writes) for handle, writes in left.items()})
    bodies = {body.name: body for body in made.bodies}
    for node in made.nodes:
        body = bodies.get(node.attr["f"].func.name) if "f" in node.attr else None
        if body is not None:
            given = dict(zip(body.arguments, node.input, strict=False))
            run = [inner for inner in body.nodes if inner.name in body.effects]
            after.update(given[h] for inner in run for h in inner.input[: num_written(inner.op)])
    for handle in before | after:
        if before[handle] != after[handle]:
            raise WuShardError(
                f"{handle} was written {before[handle]} times, with what XLA compiles"
                f" {after[handle]} times"
            )


def _check_edges(
    edges: Iterable[Edges], result: RewriteResult | Outlined
) -> tuple[set[str], dict[str, list[str]]]:
    """No two ops share a name, and every input, output and control output exists.

    Returns:
        The ops' names, and for each handle the ops that write it, in order.
    """
    names: set[str] = set()
    read: set[str] = set()
    writes: dict[str, list[str]] = collections.defaultdict(list)
    for name, op_type, inputs in edges:
        if name in names:
            raise WuShardError(f"two ops of the new graph share the name {name}")
        names.add(name)
        read.update(inputs)
        if written := num_written(op_type):
            for handle in inputs[:written]:
                writes[handle].append(name)
    sources = {text[1:] if text[0] == "^" else text.partition(":")[0] for text in read}
    if gone := sources - names:
        reader, source = _first_to_read(result.nodes, gone)
        raise WuShardError(f"{reader} reads {source}, which is gone")
    for name in (*(v.op for v in result.outputs), *result.control_outputs):
        if name not in names:
            raise WuShardError(f"the graph must yield {name}, which is gone")
    return names, writes


def _first_to_read(nodes: Iterable[Any], sources: set[str]) -> tuple[str, str]:
    """The first NodeDef that takes something of some ops, or waits for it, and that op."""
    return next(
        (node.name, source) for node in nodes for source in sources_of(node) if source in sources
    )


def _check_writes(
    old: GraphView, after: dict[str, list[str]], plan: ShardingPlan, result: RewriteResult
) -> None:
    before = _writes(old)
    sharded_weights = {w for v in plan.variables for w in v.weights}
    sharded_slots = {s.variable for s in plan.in_shards}
    for handle, writes in before.items():
        key = old.variables[handle].key if handle in old.variables else handle
        if key in sharded_slots:
            if after.get(handle):
                raise WuShardError(f"slot {key} is still written whole by {after[handle][0]}")
        elif key in sharded_weights:
            expected = result.assigns[key][old.variables[handle].replica]
            if after.get(handle) != list(expected):
                raise WuShardError(f"weight {key} is written by {after.get(handle)}")
        elif after.get(handle) != writes:
            raise WuShardError(f"{key} was written by {writes}, now by {after.get(handle)}")
    handles = {v.key: v.handles for p in plan.variables for v in p.update.variables}
    for added in result.shard_inputs:
        count = len(before.get(handles[added.slot][added.replica], ()))
        if len(after.get(added.handle, ())) != count:
            raise WuShardError(
                f"shard {added.replica} of {added.slot} is not written {count} times"
            )


def _writes(view: GraphView) -> dict[str, list[str]]:
    """For each handle, the ops that write it, in order."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for op in view:
        if written := num_written(op.type):
            for handle in op.inputs[:written]:
                found[handle.op].append(op.name)
    return found


def _check_order(result: RewriteResult) -> None:
    slot_of = {added.handle: added.slot for added in result.shard_inputs}
    for handle, one, other in races(result.edges, slot_of.keys()):
        raise WuShardError(f"nothing orders {one} and {other}, which touch {slot_of[handle]}")


def _check_carriers(names: set[str], plan: ShardingPlan) -> None:
    for variable in plan.variables:
        for reduction in variable.reductions:
            for carrier in reduction.carriers:
                if carrier in names:
                    raise WuShardError(f"{variable.variable} is still reduced whole by {carrier}")

"""What XLA is to compile of a rewritten graph: updates, and what it compiled as it was traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_wu_shard.graph.builder import GraphBuilder
from tf_wu_shard.graph.nodes import source_of
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.program.compiled_calls import compiled_in
from tf_wu_shard.rules.variables import READ
from tf_wu_shard.rules.writes import num_written
from tf_wu_shard.weight_update.plan.compiling import AS_ASKED_FOR
from tf_wu_shard.weight_update.plan.types import ShardingPlan, VariablePlan
from tf_wu_shard.weight_update.rewrite.body_emitter import BodyEmitter
from tf_wu_shard.weight_update.rewrite.compilable import compilable
from tf_wu_shard.weight_update.rewrite.result import Region


def emit(emitters: Iterable[BodyEmitter], view: GraphView, builder: GraphBuilder) -> frozenset[str]:
    """Emits the copies of an update.

    Args:
        emitters: Of each replica.
        view: The graph that is rewritten.
        builder: Where they emit.

    Returns:
        Names of what was emitted for ops that XLA compiled in the step as it was traced.
    """
    found: set[str] = set()
    for emitter in emitters:
        for op in emitter.update.body:
            first = len(builder.nodes)
            emitter.emit_op(op)
            if compiled_in(view.ops[op.ops[0]].node):
                found.update(node.name for node in builder.nodes[first:])
    return frozenset(found)


def region_of(
    variable: VariablePlan,
    ops: frozenset[str],
    handles: Mapping[str, Sequence[Value]],
    devices: Sequence[str],
) -> Region:
    """The region of an update.

    Args:
        variable: The update, which XLA is to compile.
        ops: Names of what was emitted for it.
        handles: Of each slot in shards, by key, the handles of its shards.
        devices: Those of the replicas.
    """
    weight = variable.update.variables[0]
    return Region(
        variable.update.name,
        ops,
        frozenset(handle.op for slot in variable.slots for handle in handles[slot.variable]),
        dict(zip(devices, weight.handles, strict=True)),
        exact=variable.compiled == "exact",
        as_asked_for=variable.compiled == AS_ASKED_FOR,
    )


def with_what_is_left(
    regions: Iterable[Region], nodes: Iterable[Any], plan: ShardingPlan
) -> list[Region]:
    """Regions of sharded updates, with what is left of the calls that XLA compiled these in.

    That is what is no part of the update, such as its learning rate.

    Args:
        regions: The regions.
        nodes: The NodeDefs of the graph.
        plan: What was done to it.
    """
    calls = {variable.variable: variable.update.compiled_in for variable in plan.variables}
    if not any(calls.values()):
        return [*regions]
    left = _left_of_calls(nodes)
    found = []
    for region in regions:
        own = [node for call in calls[region.name] for node in left.pop(call, ())]
        ops = region.ops.union(node.name for node in own)
        handles = region.handles | _handles(own)
        found.append(dataclasses.replace(region, ops=ops, handles=handles))
    return found


def with_calls_left(regions: Sequence[Region], nodes: Sequence[Any]) -> tuple[Region, ...]:
    """Regions, and what else is left of calls of functions that XLA compiled.

    Args:
        regions: What XLA is to compile of sharded updates.
        nodes: The NodeDefs of the graph, as it is in the end.
    """
    known = frozenset[str]().union(*(region.ops for region in regions))
    left = _left_of_calls(node for node in nodes if node.name not in known)
    calls = [
        Region(
            call,
            frozenset(node.name for node in own),
            _handles(own),
            {node.device: "" for node in own},
            exact=False,
            as_asked_for=True,
        )
        for call, own in left.items()
    ]
    return (*regions, *compilable(nodes, calls)[0])


def _left_of_calls(nodes: Iterable[Any]) -> dict[str, list[Any]]:
    """The NodeDefs that were written out of calls of functions that XLA compiled, by the call."""
    found: dict[str, list[Any]] = {}
    for node in nodes:
        if call := compiled_in(node):
            found.setdefault(call, []).append(node)
    return found


def _handles(nodes: Iterable[Any]) -> frozenset[str]:
    """Names of the handles of variables that NodeDefs read or write."""
    return frozenset(
        source_of(text)
        for node in nodes
        for text in node.input[: 1 if node.op == READ else num_written(node.op)]
    )

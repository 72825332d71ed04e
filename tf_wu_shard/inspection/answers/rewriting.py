"""What the rewrite would make of a step out of a file: a graph to compare, which nothing runs.

A TPU program is rewritten as it is, and so is a step that holds the copies of all replicas of one
process. A step of one device reduces nothing that could be scattered: its gradients are summed
first, each where it enters its update, as the one program that all replicas of a TPU run would do;
that graph is compared with its rewrite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.graph.builder import GraphBuilder, graph_def_of
from tf_wu_shard.graph.nodes import with_values
from tf_wu_shard.graph.op import Value
from tf_wu_shard.graph.view import GraphView, VariableRef
from tf_wu_shard.grounds.dialect import Dialect
from tf_wu_shard.grounds.in_process.collectives import InProcess
from tf_wu_shard.grounds.in_process.recognise import replica_devices
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.ops import SUM
from tf_wu_shard.grounds.tpu.torus import Torus
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff, graph_diff
from tf_wu_shard.inspection.steps import grounds
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.nested_steps import FoundStep
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.replicas import in_this_process
from tf_wu_shard.weight_update.analysis.analyze import analyze
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.types import ShardingPlan
from tf_wu_shard.weight_update.rewrite.result import RewriteResult


def rewritten_diff(step: FoundStep, question: Question) -> GraphDiff:
    """Compares a step with what the rewrite would make of it.

    Args:
        step: The step.
        question: For which replicas, where the step is of one device.
    """
    if not step.is_assumed:
        ground: Dialect = InProcess(in_this_process(replica_devices(step.view)))
        if step.program is not None:
            ground = grounds.traced_ground(step.program, question)
        about = f"the step as it was traced, for {step.sums_over} replicas, and as rewritten"
        return _compared(step.view, step.analysis, ground, step.sums_over, about, question.options)
    replicas = grounds.asked_replicas(None, question)
    torus = grounds.torus(replicas, question.topology)
    sums = [reduction.results[0] for reduction in step.analysis.reductions]
    summed = with_sums(step.view, sums, torus)
    about = (
        f"the step as one program of {replicas} replicas on a TPU, in which its gradients are"
        " summed where they enter their updates (the traced step, of one device, sums none), and"
        " that program as rewritten"
    )
    options = question.options or ShardingOptions()
    if options.min_elements is None:
        least = grounds.assumed_ground(replicas, None, question).preferences.min_elements
        options = dataclasses.replace(options, min_elements=least)
    ground = TpuCluster("", torus)
    return _compared(summed, analyze(summed, ground), ground, replicas, about, options)


def with_sums(view: GraphView, gradients: Sequence[Value], torus: Torus) -> GraphView:
    """A step of one device in which gradients are summed over the replicas of a TPU.

    Args:
        view: The step.
        gradients: Its gradients.
        torus: The replicas.
    """
    builder = GraphBuilder(view.ops, view.dtype)
    at = builder.at("", "")
    everyone = at.constant([list(range(torus.num_replicas))])
    summing: dict[str, list[Any]] = {}
    sums: dict[Value, Value] = {}
    for value in gradients:
        sums[value] = at.op(SUM, [value, everyone], f"{value.op}/summed")
        summing.setdefault(value.op, []).append(builder.nodes[-1])
    nodes = builder.nodes[:1]
    for op in view:
        nodes += [with_values(op.node, sums), *summing.get(op.name, ())]
    shapes = {total.op: view.shape(gradient) for gradient, total in sums.items()}
    return view.with_graph(
        graph_def_of(nodes, view.graph_def),
        shape_of=lambda value: shapes.get(value.op),
        outputs=tuple(sums.get(value, value) for value in view.outputs),
    )


def _compared(
    view: GraphView,
    analysis: Analysis,
    ground: Dialect,
    replicas: int,
    about: str,
    options: ShardingOptions | None,
) -> GraphDiff:
    try:
        sharding = planned(analysis, ground, replicas, options).rewritten(view)
        if sharding.result is None:
            return GraphDiff(f"{about}; nothing is sharded, so that nothing changes")
        return compared(view, sharding.result, sharding.plan, about)
    except WuShardError as error:
        return GraphDiff(about, refusal=str(error))
    # A file may hold any graph, and no check of it is complete.
    except Exception as error:
        return GraphDiff(about, refusal=f"its graph makes no sense ({type(error).__name__})")


def compared(view: GraphView, result: RewriteResult, plan: ShardingPlan, about: str) -> GraphDiff:
    """Compares a graph with the one that was made of it.

    Args:
        view: The graph.
        result: What was made of it.
        plan: How.
        about: What they are.
    """
    shards = {slot.variable: slot for slot in plan.in_shards}
    handles = {
        added.handle: VariableRef(
            key=f"a shard of {added.slot}",
            replica=added.replica,
            num_replicas=replicas,
            shape=tuple(shards[added.slot].layout.shard_shape(added.replica)),
            dtype=shards[added.slot].dtype,
            mirrored=False,
            device="",
        )
        for added in result.shard_inputs
        for replicas in [plan.num_replicas]
        if added.slot in shards
    }
    return graph_diff(view, result.view(view), about, handles)

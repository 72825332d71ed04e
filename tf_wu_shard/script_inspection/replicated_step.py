"""A step of several replicas as it was traced in this process: what the pass would find in it."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tf_wu_shard import eligibility, gate
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.graph_pass import step_of
from tf_wu_shard.grounds.in_process.recognise import replica_devices
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.inspection.answers.answer import SCRIPT, FunctionAnswer
from tf_wu_shard.inspection.answers.describing import described
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff
from tf_wu_shard.inspection.answers.refused_weights import described_alone
from tf_wu_shard.inspection.answers.rewriting import compared
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.nested_steps import FoundStep
from tf_wu_shard.model_files.source_lines import SourceLines
from tf_wu_shard.model_files.types import Model, ModelVariable
from tf_wu_shard.report.report import Report
from tf_wu_shard.script_inspection.live_model import slot_relations
from tf_wu_shard.step.capture import Captured, capture
from tf_wu_shard.tensorflow_private import function_graph, op_traces, tpu_graph, traced_graphs
from tf_wu_shard.tensorflow_private.distributed_variables import (
    distributed_variable_of,
    original_handle,
)
from tf_wu_shard.weight_update.stages import Outcome, Reported, run_stages


@dataclasses.dataclass(frozen=True)
class ReplicatedStep:
    """A step of several replicas.

    Attributes:
        title: What to call it.
        captured: Its graph, and the variables behind it.
        cluster: The TPU program in it; None where there is none.
        outcome: What the stages found, and would make of it.
        traces: Which lines of the script made its ops.
    """

    title: str
    captured: Captured
    cluster: Cluster | None
    outcome: Outcome
    traces: SourceLines

    @property
    def is_planned(self) -> bool:
        """Whether anything of it would be sharded."""
        shared = (*self.outcome.nested.reports, self.outcome.report)
        return any(report is not None and report.variables for report in shared)


def replicated_step(
    graph: Any, options: ShardingOptions, reported: Reported
) -> ReplicatedStep | None:
    """Looks at a function as it is traced; nothing live is changed.

    Args:
        graph: The FuncGraph.
        options: How the script asks for it to be sharded.
        reported: FuncGraphs of which there is a step already, with the variables it names.

    Returns:
        The step, or None where it is none of several replicas.
    """
    sight = gate.look(graph, wanted=True, every_trace=True)
    if not sight.is_let_through:
        return None
    with traced_graphs.no_garbage_collection():
        captured = capture(graph)
        if not eligibility.is_eligible(graph, captured.view, sight):
            return None
        outcome = run_stages(step_of(graph, captured, options, calls=True), options, reported)
    if not outcome.reports:
        return None
    return ReplicatedStep(
        title=function_graph.title(graph),
        captured=outcome.nested.captured,
        cluster=captured.cluster,
        outcome=outcome,
        traces=SourceLines(op_traces.debug_info({"": graph})),
    )


def is_replicated(graph: Any) -> bool:
    """Whether a function captured a variable of several replicas."""
    found = (distributed_variable_of(h) for h, _ in function_graph.captured_handles(graph))
    mirrored = any(one is not None and len(one[0].values) > 1 for one in found)
    return mirrored or bool(tpu_graph.replicated_variables(graph))


def answers(step: ReplicatedStep, question: Question) -> list[FunctionAnswer]:
    """The answer about a step, and of each branch or loop in it that trains.

    Args:
        step: The step.
        question: For which replicas to plan.
    """
    outcome = step.outcome
    found = [
        _by_report(step, report.function, report, "trains inside of a branch or loop")
        for report in outcome.nested.reports
    ]
    report, analysis = outcome.report, outcome.analysis
    if report is not None and analysis is None:
        return [*found, _by_report(step, step.title, report, "trains; left alone as a whole")]
    if analysis is None or report is None:
        return found
    view = step.captured.view
    replicas = len(replica_devices(view)) if step.cluster is None else 1
    live = FoundStep(view, analysis, step.cluster, replicas, outcome.constraints)
    answer = described(step.title, _model(step), question, live)
    diff = _diff(step, live) if question.diff else None
    return [*found, dataclasses.replace(answer, diff=diff)]


def _by_report(step: ReplicatedStep, name: str, report: Report, verdict: str) -> FunctionAnswer:
    """What is said where there is a report and no analysis."""
    names = (left.name for left in report.left_alone)
    refused = tuple(described_alone(_model(step), step.captured.view, names))
    return FunctionAnswer(name, True, verdict, refused=refused, report=report)


def _diff(step: ReplicatedStep, live: FoundStep) -> GraphDiff:
    """The step as it was traced, whatever is asked, and as the pass would rewrite it."""
    about = f"the step as it was traced, for {live.sums_over} replicas, and as rewritten"
    sharding = step.outcome.sharding
    if sharding is None or sharding.result is None:
        return GraphDiff(f"{about}; nothing is sharded, so that nothing changes")
    return compared(live.view, sharding.result, sharding.plan, about)


def _model(step: ReplicatedStep) -> Model:
    """The step's variables in the form that files hold."""
    refs = {ref.key: ref for ref in step.captured.view.variables.values()}
    live = step.captured.variables
    handles = {id(original_handle(v.values[0])): key for key, v in live.items()}
    return Model(
        form=SCRIPT,
        graph_def=tf.compat.v1.GraphDef(),
        functions={},
        bound=(),
        variables={
            key: ModelVariable(key, ref.shape, ref.dtype, ref.trainable)
            for key, ref in refs.items()
            if key in live
        },
        handles={},
        slots=slot_relations(handles),
        train_ops=(),
        notes=(),
        source_lines=step.traces,
    )


def count_variables(step: ReplicatedStep) -> int:
    """How many distributed variables a step uses."""
    return len(step.captured.variables)

"""The answer about a step that was read and analysed, wherever it came from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from tf_wu_shard import refusals
from tf_wu_shard.dtypes import dtype_name, item_bytes
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.grounds.tpu.cluster import Cluster
from tf_wu_shard.inspection.answers.answer import (
    FunctionAnswer,
    MemoryRow,
    RefusedAnswer,
    UpdateAnswer,
)
from tf_wu_shard.inspection.answers.picturing import picture_of
from tf_wu_shard.inspection.answers.refused_weights import refused_weights, with_refused
from tf_wu_shard.inspection.answers.rewriting import rewritten_diff
from tf_wu_shard.inspection.reading.calls import WRITERS
from tf_wu_shard.inspection.reading.op_lines import op_lines
from tf_wu_shard.inspection.recognition import optimizers
from tf_wu_shard.inspection.steps import grounds
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.inspection.steps.nested_steps import FoundStep
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.model_files.types import Model
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.plan.types import ShardingPlan

# For a file that leaves open which variables are trained.
GUESSED = (
    "the file does not say which variables are trained: a weight is taken for one where"
    " a fused update, or what reads it, shows it"
)

# For a file without shapes in which a gradient's shape would have to be known.
SHAPELESS = (
    "the file tells no value's shape, and a weight is left alone for want of one:"
    " tf.Graph.as_graph_def(add_shapes=True) writes them"
)

# For which the answer says what they would hold.
REPLICAS = tuple(2**power for power in range(1, 11))

_FOR_WANT_OF_A_SHAPE = frozenset(
    (
        refusals.Rules.RESULT_SHAPE_UNKNOWN,
        refusals.Updates.OPERAND_SHAPE_UNKNOWN,
        refusals.Updates.GRADIENT_SHAPE_OPEN,
        refusals.Rows.NOT_THE_TABLES_SHAPE,
        refusals.Branches.BRANCH_SHAPE_UNKNOWN,
        refusals.Inspection.GRADIENT_SHAPE_UNKNOWN,
    )
)


def written_variables(view: GraphView) -> dict[str, bool]:
    """The variables that a graph writes, by key, each with whether it is trained."""
    return {
        view.variables[v.op].key: view.variables[v.op].trainable
        for op in view
        if op.type in WRITERS
        for v in op.inputs[:1]
        if v.op in view.variables
    }


def described(
    name: str,
    model: Model,
    question: Question,
    step: FoundStep,
    notes: tuple[str, ...] = (),
) -> FunctionAnswer:
    """Says what of a step would be sharded.

    Args:
        name: The function's name.
        model: What it belongs to.
        question: For which replicas to plan.
        step: The step.
        notes: What was noticed when it was read.
    """
    view = step.view
    refused = refused_weights(model, view, step.analysis)
    analysis = with_refused(model, view, step.analysis, refused)
    written = written_variables(view)
    replicas = grounds.asked_replicas(step.program, question, step.replicas)
    ground = grounds.assumed_ground(replicas, step.program, question)
    sharding = planned(analysis, ground, replicas, question.options, step.constraints)
    plan, report = sharding.plan, sharding.report(name)
    # On one device a weight that no gradient enters is only set, as by a reset.
    sums = any(written.values()) and not step.is_assumed
    trains = sums or bool(plan.variables or plan.left_alone)
    rows = _memory_rows(analysis, step.program, question, step.constraints) if trains else ()
    if _wants_shapes(plan, view):
        notes = (*notes, SHAPELESS)
    lines = op_lines(model, name, (left.where for left in report.left_alone))
    held = report.held_back
    if held is not None:
        held = dataclasses.replace(held, line=dict(lines).get(held.where, ""))
    completed = dataclasses.replace(report, notes=(*report.notes, *notes), held_back=held)
    # Of a live step of several replicas the pass itself has reported what it rewrites.
    in_file = step.is_assumed or step.program is not None or step.constraints is None
    return FunctionAnswer(
        name=name,
        trains=trains,
        verdict=_verdict(step, written, trains, guessed=GUESSED in notes),
        writes=len(written),
        reductions=0 if step.is_assumed else _gradients(analysis),
        groups=_groups(step),
        assumed=_gradients(analysis) if step.is_assumed else 0,
        updates=_updates(analysis, view),
        refused=refused,
        report=completed if trains else None,
        memory=rows,
        picture=picture_of(view, plan),
        sparse=_sparse_gradients(plan),
        others=_others(view, analysis, refused, written),
        source_lines=lines,
        diff=rewritten_diff(step, question) if question.diff and trains and in_file else None,
    )


def _gradients(analysis: Analysis) -> int:
    """How many gradients are reduced; a sparse one, which has several parts, counts once."""
    return sum(r.gathered in (None, Gathered.VALUES) for r in analysis.reductions)


def _sparse_gradients(plan: ShardingPlan) -> int:
    """How many gradients are sparse where they are reduced."""
    return sum(r.gathered is Gathered.VALUES for r in plan.reductions)


def _others(
    view: GraphView,
    analysis: Analysis,
    refused: Sequence[RefusedAnswer],
    written: Collection[str],
) -> int:
    """How many variables a step writes beside weights and their slots; single numbers left out."""
    counted = {v.key for update in analysis.updates for v in update.variables}
    counted.update(key for answer in refused for key in (answer.variable, *answer.slots))
    found = {
        ref.key
        for ref in view.variables.values()
        if not ref.trainable and (ref.shape is None or math.prod(ref.shape) > 1)
    }
    return len(found.intersection(written) - counted)


def _wants_shapes(plan: ShardingPlan, view: GraphView) -> bool:
    """Whether anything is left alone for want of a shape in a graph that shows none."""
    wanted = any(left.refusal.kinds & _FOR_WANT_OF_A_SHAPE for left in plan.left_alone)
    return wanted and not any("_output_shapes" in op.node.attr for op in view)


def _groups(step: FoundStep) -> str:
    if step.is_assumed or not step.analysis.reductions:
        return ""
    return f"all {step.sums_over} replicas"


def _verdict(step: FoundStep, written: Mapping[str, bool], trains: bool, *, guessed: bool) -> str:
    if not trains:
        shapes = {ref.shape for ref in step.view.variables.values() if ref.key in written}
        if shapes == {None}:
            return (
                f"{len(written)} variable writes, but the file tells no variable's shape: what"
                " trains cannot be told (tf.Graph.as_graph_def(add_shapes=True) writes shapes)"
            )
        if guessed:
            return f"{len(written)} variable writes, none of what is known to be a weight"
        which = "none with a gradient" if any(written.values()) else "none of a weight"
        return f"{len(written)} variable writes, {which}: nothing to shard"
    if step.is_assumed:
        return "trains on one device: no gradient is reduced; planned as if it ran on replicas"
    return f"trains: sums {_gradients(step.analysis)} gradients over {step.sums_over} replicas"


def _updates(analysis: Analysis, view: GraphView) -> tuple[UpdateAnswer, ...]:
    return tuple(
        UpdateAnswer(
            variable=weight.key,
            optimizer=recognised.optimizer,
            because=recognised.because,
            slots=tuple(slot.key for slot in update.slots),
            shape=weight.shape,
            dtype=dtype_name(weight.dtype),
            gradient=str(analysis.reductions[update.reductions[0]].results[0]),
            bytes=math.prod(weight.shape) * item_bytes(weight.dtype),
        )
        for update in analysis.updates
        for weight, recognised in [(update.variables[0], optimizers.recognise(update, view))]
    )


def _memory_rows(
    analysis: Analysis,
    program: Cluster | None,
    question: Question,
    constraints: StorageConstraints | None = None,
) -> tuple[MemoryRow, ...]:
    """What the fullest replica holds, for 2, 4, 8 ... 1024 replicas.

    Args:
        analysis: What was found in a step; weights whose updates were refused count alike on both
            sides.
        program: The TPU program that it is, or None.
        question: What was asked of it.
        constraints: What is known of the variables' storage; None where nothing is.
    """
    found = []
    for replicas in REPLICAS:
        ground = grounds.assumed_ground(replicas, program, question)
        report = planned(analysis, ground, replicas, question.options, constraints).report("")
        weights, slots = report.weight_bytes_per_replica, report.slot_bytes_per_replica
        found.append(MemoryRow(replicas, weights, slots))
    return tuple(found)

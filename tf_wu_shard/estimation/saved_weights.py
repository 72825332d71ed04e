"""What the weights of a model in files would take if an optimizer trained them.

The answer has the form of that about a train step, though none is looked at: the weights are
those that the files call trained, their slots and how both would be cut are what `estimate` finds.
A gradient is taken for sparse where all functions that only compute look its weight up by rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.dtypes import dtype_name, item_bytes
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.estimation.estimate import analysis_of, notes_on, row_of
from tf_wu_shard.estimation.grounds import UNKNOWN, ground_of
from tf_wu_shard.estimation.optimizer_step import (
    OptimizerStep,
    makes_dense,
    trace,
)
from tf_wu_shard.estimation.weights import TrainedWeight
from tf_wu_shard.graph.op import Op, Value
from tf_wu_shard.graph.view import GraphView
from tf_wu_shard.inspection.answers.answer import (
    FunctionAnswer,
    Inspection,
    MemoryRow,
    UpdateAnswer,
)
from tf_wu_shard.inspection.answers.describing import REPLICAS
from tf_wu_shard.inspection.answers.picturing import picture_of
from tf_wu_shard.inspection.reading.calls import Calls
from tf_wu_shard.inspection.reading.function_view import view_of_function
from tf_wu_shard.inspection.reading.reference_variables import reference_weights, said_of
from tf_wu_shard.inspection.steps.grounds import DEFAULT_REPLICAS, Question
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.model_files.types import Model, ModelVariable
from tf_wu_shard.tensorflow_private import traced_graphs
from tf_wu_shard.weight_update.analysis.types import Analysis

# What hands a value on, and its sparse gradient back.
_PASSED_ON = frozenset({"ReadVariableOp", "Identity", "Cast"})


def inspect_with_optimizer(model: Model, optimizer: Any, question: Question) -> Inspection:
    """Answers what would be sharded if an optimizer trained a model's weights.

    Args:
        model: The model; whether it has a train step does not matter.
        optimizer: A Keras optimizer, see `optimizer_of`; not built or changed.
        question: For which replicas.

    Returns:
        The answer: one function that is none of the model's. What the files do not show is among
        its notes.

    Raises:
        OptionError: The optimizer updates weights inside of a branch.
        ModelFileError: The files do not say which variables are trained, or call none so.
    """
    weights, notes = _weights(model)
    on_tpus = question.topology is not None
    if not on_tpus and not makes_dense(optimizer):
        looked_up, unread = _looked_up(model)
        weights = [dataclasses.replace(w, sparse=w.name in looked_up) for w in weights]
        notes += unread
    with traced_graphs.no_garbage_collection():
        step = trace(optimizer, weights)
        answer = _answer(step, weights, question)
    trained = f"trained its {len(weights)} trainable variables"
    return Inspection(
        model.form,
        len(model.variables),
        (answer,),
        (*model.notes, *notes),
        what_if=f"what if {step.name}, with Keras's defaults, {trained}",
    )


def _weights(model: Model) -> tuple[list[TrainedWeight], list[str]]:
    """What is trained, and what is not known of it."""
    if model.variables and all(v.trainable is None for v in model.variables.values()):
        raise ModelFileError(
            "the file does not say which variables are trained; the directory of a SavedModel does"
        )
    trained = [v for v in model.variables.values() if v.trainable]
    # Integers may be marked so by mistake: no optimizer takes their gradients.
    trained = [v for v in trained if not v.dtype or tf.as_dtype(v.dtype).is_floating]
    by_reference = reference_weights(model.graph_def)
    if not trained and by_reference:
        raise ModelFileError(said_of(by_reference))
    if not trained:
        raise ModelFileError("the model has no trainable variable: no optimizer could train it")
    known = [v for v in trained if v.shape is not None and v.dtype]
    unknown = [v.key for v in trained if v not in known]
    notes = [f"left out, as shape or type are not known: {', '.join(unknown)}"] if unknown else []
    if not known:
        raise ModelFileError("the files tell the shape of no trainable variable")
    return [_weight(v, v.shape) for v in known if v.shape is not None], notes


def _weight(variable: ModelVariable, shape: tuple[int, ...]) -> TrainedWeight:
    return TrainedWeight(
        name=variable.key,
        shape=shape,
        dtype=dtype_name(variable.dtype),
        sparse=False,
        read_as=variable.dtype,
    )


def _looked_up(model: Model) -> tuple[set[str], list[str]]:
    """Keys of the variables that are only looked up by rows, and what could not be read for it."""
    calls = Calls(model.functions)
    rows: set[str] = set()
    otherwise: set[str] = set()
    notes = []
    for function in model.bound:
        if function.name not in model.functions or calls.reach(function.name).refusal:
            continue
        if calls.reach(function.name).writes:
            continue
        try:
            view = view_of_function(model, function).view
            taken = list(_taken(view))
        # A file may hold any graph, and no check of it is complete.
        except Exception as error:
            notes.append(f"{function.name}: not looked at: {error or type(error).__name__}")
            continue
        rows |= {key for key, as_rows in taken if as_rows}
        otherwise |= {key for key, as_rows in taken if not as_rows}
    return rows - otherwise, notes


def _taken(view: GraphView) -> Iterator[tuple[str, bool]]:
    """The variables that anything takes, each with whether rows are picked out of it."""
    for handle, ref in view.variables.items():
        for op, slot in _users(view, handle):
            yield ref.key, _takes_rows(view, op, slot)


def _users(view: GraphView, handle: str) -> Iterator[tuple[Op, int]]:
    """What takes a variable's value in the end, each with the number of the operand that it is."""
    stack = [Value(handle)]
    while stack:
        for op, slot in view.consumers(stack.pop()):
            if op.type in _PASSED_ON:
                stack.append(Value(op.name))
            else:
                yield op, slot


def _takes_rows(view: GraphView, op: Op, slot: int) -> bool:
    """Whether an op picks rows of an operand, so that TensorFlow's gradient of it is sparse."""
    if op.type == "ResourceGather":
        return True
    if op.type != "GatherV2" or slot != 0:
        return False
    axis = view.integers(op.inputs[2])
    return axis is not None and not any(axis)


def _answer(step: OptimizerStep, weights: list[TrainedWeight], asked: Question) -> FunctionAnswer:
    slice_ = asked.topology
    where = None if slice_ is None else slice_.name
    number = slice_.num_devices if slice_ is not None else asked.replicas or DEFAULT_REPLICAS
    options = ShardingOptions()
    ground = ground_of(number, where, step.gradients)
    found = analysis_of(step, weights, ground)
    sharding = planned(found, ground, number, options)
    name = f"trained with {step.name}"
    report = sharding.report(name)
    notes = (*report.notes, *notes_on(weights, step, where))
    anywhere = None if slice_ is None else UNKNOWN
    grounds = [(ground_of(n, anywhere, step.gradients), n) for n in REPLICAS]
    rows = (row_of(step, weights, planned(found, ground, n, options)) for ground, n in grounds)
    return FunctionAnswer(
        name=name,
        trains=True,
        verdict="is no function of the model: its step is made up, from the optimizer alone",
        writes=len(weights) + len(step.slots) + len(step.counters),
        assumed=len(weights),
        updates=tuple(_updates(step, found)),
        report=dataclasses.replace(report, notes=notes),
        memory=tuple(MemoryRow(row.num_replicas, row.weights, row.slots) for row in rows),
        picture=picture_of(step.view, sharding.plan),
        sparse=sum(weight.sparse for weight in weights),
    )


def _updates(step: OptimizerStep, analysis: Analysis) -> Iterator[UpdateAnswer]:
    for update in analysis.updates:
        weight = update.variables[0]
        yield UpdateAnswer(
            variable=weight.key,
            optimizer=step.name,
            because="asked for",
            slots=tuple(slot.key for slot in (*update.slots, *update.whole_slots)),
            shape=weight.shape,
            dtype=dtype_name(weight.dtype),
            gradient=str(analysis.reductions[update.reductions[0]].results[0]),
            bytes=math.prod(weight.shape) * item_bytes(weight.dtype),
        )

"""A traced function is looked at as it is when it was saved and read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tests.model_files.exported import Step, exported
from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.reading.function_names import short_name
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model
from tf_wu_shard.script_inspection.live_model import live_model

# What TensorFlow adds to the name of each copy of a variable.
_COPIES = ("", "/replica_1")


def training(inspection: Inspection) -> FunctionAnswer:
    (found,) = (f for f in inspection.functions if f.report is not None)
    return found


def without_numbers(answer: FunctionAnswer) -> FunctionAnswer:
    """The same but for what TensorFlow counts on, and for source lines, which files may lack."""
    assert answer.report is not None
    name = short_name(answer.name)
    report = dataclasses.replace(answer.report, function=name)
    return dataclasses.replace(
        answer, name=name, report=report, source_lines=(), picture=None, updates=()
    )


def test_a_live_step_is_answered_as_the_saved_one() -> None:
    step, question = Step("adam"), Question(replicas=4)
    live = training(inspect(live_model([step.train.get_concrete_function()]), question))
    saved = training(inspect(read_model(exported("adam")), question))
    assert without_numbers(live) == without_numbers(saved)
    assert [u.optimizer for u in live.updates] == [u.optimizer for u in saved.updates]


def test_slots_are_those_that_the_optimizer_lists() -> None:
    step = Step("adam")
    slots = live_model([step.train.get_concrete_function()]).slots
    paired = {(s.variable, s.name, s.slot) for s in slots}
    name = "adam/sequential_hidden_kernel"
    assert ("sequential/hidden/kernel", "momentums", f"{name}_momentum") in paired
    assert len(paired) == 8


def test_a_reason_has_the_line_that_made_its_op() -> None:
    step = Step("adam")
    model = live_model([step.train.get_concrete_function()])
    (name,) = (bound.name for bound in model.bound)
    assert model.source_lines is not None
    ops = [node.name for node in model.functions[name].node_def if node.op == "MatMul"]
    lines = {model.source_lines.line(op, name) for op in ops}
    assert any("exported.py:" in line for line in lines)


def test_weights_of_a_model_that_is_built_late_are_told_apart(
    strategy_of: Callable[[int], tf.distribute.MirroredStrategy],
) -> None:
    with strategy_of(2).scope():
        layers = [keras.layers.Dense(2, use_bias=False, name=name) for name in ("one", "other")]
        late = keras.Sequential(layers, name="late")
        late.build((None, 2))
    copies = [weight for layer in layers for weight in layer.kernel.value.values]
    step = tf.function(lambda: [copy.read_value() for copy in copies]).get_concrete_function()
    named = [f"late/{layer}/kernel{copy}" for layer in ("one", "other") for copy in _COPIES]
    assert {*live_model([step]).variables} == {*named}

"""What is said of weights whose updates are refused: what they are, and what is counted."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.inspection.inspect_test import training
from tests.model_files.exported import Step, save, save_step
from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection, RefusedAnswer
from tf_wu_shard.inspection.formats.json_text import as_json
from tf_wu_shard.inspection.formats.markdown import as_markdown
from tf_wu_shard.inspection.formats.page import as_html
from tf_wu_shard.inspection.formats.text import as_lines
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

SIZE = 2048
REPLICAS = 4

Write = Callable[["Module", Any], None]


class Module(tf.Module):
    """Two weights, and what a step may keep for them."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros((SIZE,)), name="weight")
        self.other = tf.Variable(tf.zeros((SIZE,)), name="other")
        self.slot = tf.Variable(tf.zeros((SIZE,)), name="slot", trainable=False)
        self.second = tf.Variable(tf.zeros((SIZE,)), name="second", trainable=False)
        self.factor = tf.Variable(tf.zeros((2,)), name="factor", trainable=False)
        self.count = tf.Variable(0.0, name="count", trainable=False)
        self._write = write

    @tf.function(input_signature=[tf.TensorSpec((4, SIZE))])
    def train(self, batch: Any) -> None:
        """One step."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.linalg.matvec(batch, self.weight) ** 2)
        self._write(self, tape.gradient(loss, self.weight))


def inspected(write: Write, folder: pathlib.Path) -> Inspection:
    """What is said of a step, its weight "weight" being refused."""
    save(Module(write), folder, {})
    return inspect(read_model(folder), Question(replicas=REPLICAS, function="train"))


def refused(write: Write, folder: pathlib.Path) -> RefusedAnswer:
    """What is said of the one weight that a step updates."""
    (answer,) = training(inspected(write, folder)).refused
    assert (answer.variable, answer.shape, answer.dtype) == ("weight", (SIZE,), "float32")
    assert answer.bytes == 4 * SIZE
    return answer


def noisily(weight: tf.Variable, change: Any) -> None:
    """Changes a weight, with noise that each replica would have of its own."""
    weight.assign_sub(change)
    weight.assign_add(tf.random.normal((SIZE,)))


def plain(module: Module, gradient: Any) -> None:
    noisily(module.weight, gradient * module.count.assign_add(1.0))


def averaged(module: Module, gradient: Any) -> None:
    """The second slot is seen only by what is written to the first."""
    second = module.second.assign(0.9 * module.second + gradient)
    module.slot.assign(tf.maximum(module.slot, second))
    noisily(module.weight, module.slot)


def factored(module: Module, gradient: Any) -> None:
    module.factor.assign_add(gradient[:2])
    module.slot.assign_add(gradient)
    noisily(module.weight, module.slot * tf.reduce_sum(module.factor))


def shared(module: Module, gradient: Any) -> None:
    """What two weights depend on is no slot of either."""
    module.slot.assign_add(gradient)
    noisily(module.weight, module.slot)
    noisily(module.other, module.slot)


def in_a_remote_call(module: Module, gradient: Any) -> None:
    """Nobody looks into a function that is called by a device's name."""

    @tf.function(input_signature=[tf.TensorSpec((SIZE,))])
    def step(gradient: Any) -> Any:
        module.weight.assign_sub(module.slot.assign_add(gradient))
        return gradient

    called = step.get_concrete_function()
    handles = [value for value, _ in called.graph.captures]
    tf.raw_ops.RemoteCall(
        target="/device:CPU:0", args=[gradient, *handles], Tout=[tf.float32], f=called
    )


def test_a_weight_without_slots_has_none(tmp_path: pathlib.Path) -> None:
    answer = refused(plain, tmp_path)
    assert (answer.slots, answer.slots_told, answer.slot_bytes) == ((), True, 0)


def test_slots_are_what_the_update_goes_through(tmp_path: pathlib.Path) -> None:
    answer = refused(averaged, tmp_path)
    assert (answer.slots, answer.slots_told) == (("second", "slot"), True)
    assert answer.slot_bytes == 2 * 4 * SIZE


def test_what_has_another_shape_may_be_anything(tmp_path: pathlib.Path) -> None:
    answer = refused(factored, tmp_path)
    assert (answer.slots, answer.slots_told) == (("slot",), False)


def test_what_two_weights_depend_on_is_no_slot_of_either(tmp_path: pathlib.Path) -> None:
    answers = training(inspected(shared, tmp_path)).refused
    assert {a.variable for a in answers} == {"weight", "other"}
    assert not any(a.slots or a.slots_told for a in answers)


def test_slots_of_what_is_called_elsewhere_are_not_told(tmp_path: pathlib.Path) -> None:
    answer = refused(in_a_remote_call, tmp_path)
    assert (answer.slots, answer.slots_told) == ((), False)


def _assert_bytes_agree(found: FunctionAnswer) -> None:
    assert found.report is not None
    (row,) = (row for row in found.memory if row.replicas == REPLICAS)
    assert row.weights == found.report.weight_bytes_per_replica
    assert row.slots == found.report.slot_bytes_per_replica


def test_all_tables_count_the_same(tmp_path: pathlib.Path) -> None:
    found = training(inspected(averaged, tmp_path))
    _assert_bytes_agree(found)
    assert found.report is not None and not found.report.variables
    assert found.report.weight_bytes_per_replica.unsharded == 4 * SIZE
    assert found.report.slot_bytes_per_replica.sharded == 2 * 4 * SIZE


@pytest.mark.parametrize("scaled", [False, True])
def test_an_optimizer_in_the_object_graph_tells_its_slots(
    tmp_path: pathlib.Path, scaled: bool
) -> None:
    optimizer = tf.keras.optimizers.Adam()
    if scaled:
        # It updates inside of a branch.
        optimizer = tf.keras.optimizers.LossScaleOptimizer(optimizer)
    path = save_step(Step(optimizer), tmp_path)
    found = training(inspect(read_model(path), Question(replicas=REPLICAS)))
    _assert_bytes_agree(found)
    elements = 16 * 64 + 64 + 64 * 10 + 10
    assert found.report is not None
    assert found.report.weight_bytes_per_replica.unsharded == 4 * elements
    assert found.report.slot_bytes_per_replica.unsharded == 2 * 4 * elements


def test_every_format_says_what_is_left_alone(tmp_path: pathlib.Path) -> None:
    inspection = inspected(averaged, tmp_path)
    assert "weight  [2048] float32, 8.19 kB   slots second, slot   what replicas" in as_lines(
        inspection
    )
    row = "| `weight` | 2,048 | float32 | 8.19 kB |  | `second, slot` | left alone |"
    assert row in as_markdown(inspection)
    for text in ("2,048", "float32", "8.19 kB", "second, slot"):
        assert text in as_html(inspection)
    (left,) = json.loads(as_json(inspection))["left_alone"]
    said = {key: left[key] for key in ("shape", "dtype", "bytes", "slots", "slots_told")}
    assert said == {
        "shape": [SIZE],
        "dtype": "float32",
        "bytes": 4 * SIZE,
        "slots": ["second", "slot"],
        "slots_told": True,
    }


def test_what_is_not_counted_is_said(tmp_path: pathlib.Path) -> None:
    inspection = inspected(in_a_remote_call, tmp_path)
    for text in (as_lines(inspection), as_markdown(inspection), as_html(inspection)):
        assert "Counted are the weights of the one variable, sharded or left alone" in text
        assert "Slots of 1 weight left alone are not counted, or not all of them" in text
        assert "those of 1 weight left alone are not" in text
    (plan,) = json.loads(as_json(inspection))["plan"]
    assert len(plan["counted"]) == 3
    assert f"{REPLICAS}   8.19 kB -> 8.19 kB       not known -> not known" in as_lines(inspection)
    assert "| slots | not known | not known |" in as_markdown(inspection)


def test_what_is_counted_in_part_is_said_to_be_more(tmp_path: pathlib.Path) -> None:
    """Of the two things that the update keeps, one is told."""
    inspection = inspected(factored, tmp_path)
    assert "| slots | at least 8.19 kB | at least 8.19 kB |" in as_markdown(inspection)
    assert "slots slot, others not known" in as_lines(inspection)

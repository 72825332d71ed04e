"""Where gradients enter the updates of a step that was traced on one device."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.model_files.exported import save
from tf_wu_shard.inspection.answer import FunctionAnswer
from tf_wu_shard.inspection.grounds import Question
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.model_files.read import read_model

SIZE = 2048

Step = Callable[[tf.Variable, tf.Variable, Any], None]


class Module(tf.Module):
    """A weight and a slot, and a step that a test writes."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros((SIZE,)), name="weight")
        self.slot = tf.Variable(tf.zeros((SIZE,)), name="slot", trainable=False)
        self._step = step

    @tf.function(input_signature=[tf.TensorSpec((4, SIZE))])
    def train(self, batch: Any) -> None:
        """One step."""
        self._step(self.weight, self.slot, batch)


def answer_to(step: Step, folder: pathlib.Path) -> FunctionAnswer:
    """What is said of a step: (weight, slot, batch) in, nothing out."""
    save(Module(step), folder, {})
    (found,) = inspect(read_model(folder), Question(replicas=2, function="train")).functions
    return found


def gradient_of(weight: tf.Variable, batch: Any) -> Any:
    """A gradient out of a matrix product."""
    return tf.linalg.matvec(batch, tf.linalg.matvec(batch, weight), transpose_a=True)


def sgd(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    weight.assign_sub(0.1 * gradient_of(weight, batch))


def momentum_by_a_value(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Writes the same value to slot and weight: it holds the slot's past and is no gradient."""
    moved = 0.9 * slot + 0.1 * gradient_of(weight, batch)
    slot.assign(moved)
    weight.assign_sub(moved)


def momentum_by_a_matrix(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Puts an op that no rule names between slot and weight."""
    slot.assign(0.9 * slot + gradient_of(weight, batch))
    weight.assign_sub(tf.cumsum(slot.read_value()))


def adagrad(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    gradient = gradient_of(weight, batch)
    slot.assign_add(gradient * gradient)
    weight.assign_sub(0.1 * gradient / (tf.sqrt(slot) + 1e-6))


@pytest.mark.parametrize(
    ("step", "optimizer", "slots"),
    [
        (sgd, "sgd-like", ()),
        (momentum_by_a_value, "momentum-like", ("slot",)),
        (adagrad, "adagrad-like", ("slot",)),
        (momentum_by_a_matrix, "unknown", ("slot",)),
    ],
)
def test_an_update_by_hand_is_found_with_its_slots(
    tmp_path: pathlib.Path, step: Step, optimizer: str, slots: tuple[str, ...]
) -> None:
    found = answer_to(step, tmp_path)
    (update,) = found.updates
    assert (update.variable, update.optimizer, update.slots) == ("weight", optimizer, slots)
    assert found.assumed == 1 and found.reductions == 0
    assert "no gradient is reduced" in found.verdict


def two_ways(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """The slot follows another gradient than the weight."""
    slot.assign(0.9 * slot + gradient_of(weight, batch))
    weight.assign_sub(slot * gradient_of(weight, 2 * batch))


def by_the_batch(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    """Scales an update by a number that each replica has of its own."""
    slot.assign(0.9 * slot + gradient_of(weight, batch))
    weight.assign_sub(slot * tf.reduce_mean(batch))


def scattered(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    rows = tf.cast(batch[0, :2], tf.int32)
    weight.scatter_sub(tf.IndexedSlices(batch[1, :2], rows))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (two_ways, "is no gradient of a weight"),
        (by_the_batch, "is no gradient of a weight"),
        (scattered, "its gradient is sparse: rows and values enter apart"),
    ],
)
def test_what_is_ambiguous_is_said_to_be(tmp_path: pathlib.Path, step: Step, reason: str) -> None:
    found = answer_to(step, tmp_path)
    assert found.trains and not found.updates and found.report is not None
    (left,) = found.report.left_alone
    assert left.name == "weight" and reason in left.reason


def follows(weight: tf.Variable, slot: tf.Variable, batch: Any) -> None:
    slot.assign(0.9 * slot + 0.1 * weight)


def test_an_average_of_a_weight_trains_nothing(tmp_path: pathlib.Path) -> None:
    found = answer_to(follows, tmp_path)
    assert not found.trains and found.writes == 1
    assert found.verdict == "1 variable writes, none of a weight: nothing to shard"

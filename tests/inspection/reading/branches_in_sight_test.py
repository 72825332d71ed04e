"""Updates in branches and loops of a saved step are answered as the live pass shares them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.inspection.nested_exports import NAMES, shared
from tests.model_files.exported import Step as Classifier
from tests.model_files.exported import save
from tests.project.imports import ROOT
from tests.selection import cases, selected
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.inspection.answers.answer import FunctionAnswer
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.reading import branches_in_sight
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

SIZE = 2048

# What the live pass was asked for as well.
EVERYTHING = ShardingOptions(min_elements=1)


@pytest.fixture(scope="module")
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Where scenarios that are asked about were exported, and what the live pass shares of each."""
    names = selected(request, "name")
    folder = tmp_path_factory.mktemp("nested")
    done = subprocess.run(
        [sys.executable, "-m", "tests.inspection.nested_exports", str(folder), *names],
        cwd=ROOT,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", cases(NAMES, {"accumulated", "looped", "own_factor"}))
def test_a_tpu_program_in_a_file_is_shared_as_when_it_runs(
    exported: tuple[pathlib.Path, dict[str, Any]], name: str
) -> None:
    folder, live = exported
    found: dict[str, Any] = {}
    for one in sorted((folder / name).iterdir()):
        inspection = inspect(read_model(one), Question(function="step", options=EVERYTHING))
        assert not inspection.notes
        found |= shared(a.report for a in inspection.functions if a.report is not None)
    assert found == live[name]
    # A scenario in which replicas differ shares nothing; of each net, two kernels can be.
    assert len(found) == {"own_factor": 0, "adversarial": 4}.get(name, 2)


class OneDevice(tf.Module):
    """A weight and a slot, and a step on one device that a test writes."""

    def __init__(self, step: Callable[[OneDevice, Any], None]) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros((SIZE,)), name="weight")
        self.slot = tf.Variable(tf.zeros((SIZE,)), name="slot", trainable=False)
        self.count = tf.Variable(0, name="count", trainable=False)
        self._step = step

    @tf.function(input_signature=[tf.TensorSpec((4, SIZE))])
    def train(self, batch: Any) -> None:
        """One step."""
        self._step(self, batch)

    def gradient(self, batch: Any) -> Any:
        """A gradient out of a matrix product."""
        return tf.linalg.matvec(batch, tf.linalg.matvec(batch, self.weight), transpose_a=True)

    def momentum(self, gradient: Any) -> None:
        """An update of both."""
        self.slot.assign(0.9 * self.slot + gradient)
        self.weight.assign_sub(0.1 * self.slot)


def answers_to(
    step: Callable[[OneDevice, Any], None], folder: pathlib.Path
) -> tuple[FunctionAnswer, ...]:
    save(OneDevice(step), folder, {})
    return inspect(read_model(folder), Question(replicas=2, function="train")).functions


def applied_in_a_branch(module: OneDevice, batch: Any) -> None:
    gradient = module.gradient(batch)
    if tf.reduce_all(tf.math.is_finite(gradient)):
        module.momentum(gradient)


def applied_in_a_case(module: OneDevice, batch: Any) -> None:
    gradient = module.gradient(batch)
    tf.switch_case(
        module.count % 3, [lambda: module.momentum(gradient), lambda: None, lambda: None]
    )


def applied_in_branches_of_branches(module: OneDevice, batch: Any) -> None:
    gradient = module.gradient(batch)
    if tf.reduce_all(tf.math.is_finite(gradient)):
        if module.count > 3:
            module.momentum(gradient)
        else:
            module.slot.assign(gradient)


def trained_in_a_loop(module: OneDevice, batch: Any) -> None:
    for _ in tf.range(3):
        module.momentum(module.gradient(batch))


def trained_in_a_branch(module: OneDevice, batch: Any) -> None:
    if module.count > 0:
        module.momentum(module.gradient(batch))


def trained_in_a_loop_of_a_branch(module: OneDevice, batch: Any) -> None:
    if module.count > 0:
        for _ in tf.range(3):
            applied_in_a_branch(module, batch)


@pytest.mark.parametrize(
    "step", [applied_in_a_branch, applied_in_a_case, applied_in_branches_of_branches]
)
def test_branches_that_apply_gradients_are_written_out(
    tmp_path: pathlib.Path, step: Callable[[OneDevice, Any], None]
) -> None:
    (found,) = answers_to(step, tmp_path)
    (update,) = found.updates
    assert (update.variable, update.slots) == ("weight", ("slot",))
    # With two ways to write its slot, it is none that has a name.
    two_ways = step is applied_in_branches_of_branches
    assert update.optimizer == ("unknown" if two_ways else "momentum-like")
    assert found.report is not None and [v.name for v in found.report.variables] == ["weight"]


@pytest.mark.parametrize(
    "step", [trained_in_a_loop, trained_in_a_branch, trained_in_a_loop_of_a_branch]
)
def test_other_branches_and_loops_are_steps_of_their_own(
    tmp_path: pathlib.Path, step: Callable[[OneDevice, Any], None]
) -> None:
    around, inside = answers_to(step, tmp_path)
    assert around.trained_by == inside.name and inside.name.startswith(f"{around.name}/")
    (update,) = inside.updates
    assert (update.optimizer, update.slots) == ("momentum-like", ("slot",))
    assert inside.report is not None and [v.name for v in inside.report.variables] == ["weight"]


def test_a_slot_that_is_used_outside_of_the_loop_stays_whole(tmp_path: pathlib.Path) -> None:
    def step(module: OneDevice, batch: Any) -> None:
        trained_in_a_loop(module, batch)
        module.count.assign_add(tf.cast(tf.reduce_sum(module.slot), tf.int32))

    inside = answers_to(step, tmp_path)[-1]
    assert inside.report is not None
    (left,) = inside.report.left_alone
    assert left.name == "weight" and "also used outside of it" in left.reason


def test_more_branches_than_can_be_looked_at_are_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branches_in_sight, "_MOST_WORK", 10)
    (found,) = answers_to(applied_in_a_branch, tmp_path)
    assert "1 branches and loops write variables, too many" in found.refusal


def test_what_must_not_run_in_vain_keeps_its_branch(tmp_path: pathlib.Path) -> None:
    def step(module: OneDevice, batch: Any) -> None:
        gradient = module.gradient(batch)
        if module.count > 0:
            tf.print(module.count)
            module.weight.assign_sub(tf.cumsum(gradient))

    found = answers_to(step, tmp_path)
    assert all(not answer.updates for answer in found[:1])
    assert found[-1].trains


@pytest.mark.parametrize(
    ("optimizer", "nested"),
    [
        (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), False),
        (lambda: keras.optimizers.Adam(gradient_accumulation_steps=2), True),
        (
            lambda: keras.optimizers.SGD(momentum=0.9, use_ema=True, ema_overwrite_frequency=3),
            False,
        ),
    ],
)
def test_keras_branches(tmp_path: pathlib.Path, optimizer: Any, nested: bool) -> None:
    step = Classifier(optimizer())
    save(step, tmp_path, {"train": step.train})
    question = Question(replicas=2, function="train", options=EVERYTHING)
    (answer,) = (a for a in inspect(read_model(tmp_path), question).functions if a.updates)
    assert ("/" in answer.name) == nested
    assert answer.report is not None and not answer.report.left_alone
    assert len(answer.report.variables) == 4
    assert {update.optimizer for update in answer.updates} <= {"adam-like", "momentum-like"}

"""An optimizer is recognised beside averages of its weight and before what constrains that."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.inspection.inspect_test import training
from tests.inspection.recognition.optimizers_test import adam, adamw, recognised
from tests.model_files.exported import Step, save_step
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.model_files.read import read_model

_CONSTRAINTS = [
    keras.constraints.MaxNorm,
    keras.constraints.UnitNorm,
    keras.constraints.MinMaxNorm,
    keras.constraints.NonNeg,
]


def sgd(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    w.assign_sub(0.1 * g)


def momentum(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    m.assign(0.9 * m + g)
    w.assign_sub(0.1 * m)


@pytest.mark.parametrize("constraint", _CONSTRAINTS)
@pytest.mark.parametrize(
    ("rule", "name"),
    [(sgd, "sgd-like"), (momentum, "momentum-like"), (adam, "adam-like"), (adamw, "adamw-like")],
)
def test_what_only_changes_the_weight_by_itself_is_a_constraint(
    tmp_path: pathlib.Path, rule: Any, name: str, constraint: Callable[[], Any]
) -> None:
    constrain = constraint()

    def constrained(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
        rule(w, m, v, g)
        w.assign(constrain(w.read_value()))

    optimizer, because = recognised(constrained, tmp_path)
    assert optimizer == name
    assert because.endswith("then the weight is constrained")


def pulled_to_a_slot(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    momentum(w, m, v, g)
    w.assign(tf.maximum(w, m))


def pushed_by_the_gradient(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    sgd(w, m, v, g)
    w.assign(tf.clip_by_value(w, -tf.abs(g), tf.abs(g)))


@pytest.mark.parametrize("rule", [pulled_to_a_slot, pushed_by_the_gradient])
def test_what_changes_it_by_more_is_none(tmp_path: pathlib.Path, rule: Any) -> None:
    assert recognised(rule, tmp_path)[0] == "unknown"


@pytest.mark.parametrize(
    ("optimizer", "name", "slots"),
    [
        (lambda: keras.optimizers.SGD(0.1, use_ema=True), "sgd-like", 1),
        (lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True), "momentum-like", 2),
        (lambda: keras.optimizers.SGD(0.1, weight_decay=0.1, use_ema=True), "sgd-like", 1),
        (lambda: keras.optimizers.Adagrad(0.1, use_ema=True), "adagrad-like", 2),
    ],
    ids=("sgd", "momentum", "decayed", "adagrad"),
)
def test_an_average_of_the_weight_is_no_momentum(
    tmp_path: pathlib.Path, optimizer: Callable[[], Any], name: str, slots: int
) -> None:
    found = training(inspect(read_model(save_step(Step(optimizer()), tmp_path)), Question()))
    assert {u.optimizer for u in found.updates} == {name}
    assert {len(u.slots) for u in found.updates} == {slots}

"""The end of an epoch's steps is told of before fit validates and before callbacks hear of it."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest

from tf_wu_shard.tensorflow_private import epoch_ends
from tf_wu_shard.tensorflow_private.epoch_ends import before_epochs_end
from tf_wu_shard.tensorflow_private.training_modules import CALLBACK_LISTS, TRAINERS
from tf_wu_shard.tensorflow_private.wrapping import unwrap


class Model:
    """What trains."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def evaluate(self, data: Any, **kwargs: Any) -> str:
        """Notes that it did."""
        self.done.append("evaluated")
        return f"loss of {data}"


class CallbackList:
    """What tells callbacks."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Notes that it did."""
        self.model.done.append(f"epoch {epoch}, {logs}")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model of a package that is imported, beside one that is not."""
    module: Any = types.ModuleType("a_keras.training")
    module.Model, module.CallbackList = Model, CallbackList
    monkeypatch.setitem(sys.modules, "a_keras", types.ModuleType("a_keras"))
    monkeypatch.setitem(sys.modules, "a_keras.training", module)
    for table, name in (("TRAINERS", "Model"), ("CALLBACK_LISTS", "CallbackList")):
        of_both = {one: (f"{one}.training", name) for one in ("a_keras", "no_such_keras")}
        monkeypatch.setattr(epoch_ends, table, of_both)
    monkeypatch.setattr(Model, "evaluate", Model.evaluate)
    monkeypatch.setattr(CallbackList, "on_epoch_end", CallbackList.on_epoch_end)
    before_epochs_end(lambda one: one.done.append("told"))
    return Model()


def test_it_is_told_before_fit_validates(model: Model) -> None:
    assert model.evaluate("data", _use_cached_eval_dataset=True) == "loss of data"
    assert model.done == ["told", "evaluated"]


@pytest.mark.parametrize("given", [{}, {"_use_cached_eval_dataset": False}])
def test_an_evaluation_of_the_users_is_the_end_of_no_epoch(model: Model, given: Any) -> None:
    model.evaluate("data", **given)
    assert model.done == ["evaluated"]


def test_it_is_told_before_callbacks(model: Model) -> None:
    CallbackList(model).on_epoch_end(3, logs="logs")
    assert model.done == ["told", "epoch 3, logs"]


def test_a_second_one_is_not_told(model: Model) -> None:
    before_epochs_end(lambda one: one.done.append("told again"))
    CallbackList(model).on_epoch_end(0)
    assert model.done == ["told", "epoch 0, None"]


@pytest.mark.parametrize("package", TRAINERS)
def test_a_real_fit_tells_before_its_validation_and_its_callbacks(
    package: str, monkeypatch: pytest.MonkeyPatch, logical_cpus: list[str]
) -> None:
    keras: Any = importlib.import_module(package)
    for (module, name), method in (
        (TRAINERS[package], "evaluate"),
        (CALLBACK_LISTS[package], "on_epoch_end"),
    ):
        owner = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(owner, method, getattr(owner, method))
        unwrap(owner, method)
    done: list[str] = []
    made = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", run_eagerly=True)
    before_epochs_end(lambda one: done.append("told" if one is made else "told of another"))
    noting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: done.append("step"),
        on_epoch_end=lambda epoch, logs: done.append("epoch"),
    )
    noting.on_test_begin = lambda logs=None: done.append("validation")
    data = np.ones((2, 2), np.float32), np.ones((2, 1), np.float32)
    made.fit(*data, verbose=0, validation_data=data, callbacks=[noting])
    assert done == ["step", "told", "validation", "told", "epoch"]

"""Whoever writes a model to files is told of it before, with the model, in what is imported."""

from __future__ import annotations

import pathlib
import sys
import types
from typing import Any

import keras
import pytest

from tf_wu_shard.tensorflow_private import model_saves
from tf_wu_shard.tensorflow_private.model_saves import before_saves
from tf_wu_shard.tensorflow_private.training_modules import SAVES
from tf_wu_shard.tensorflow_private.wrapping import unwrap


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of an imported package that saves by `save` and `weights`, and notes what it did."""
    found: Any = types.ModuleType("a_keras.saving")
    found.done = []

    def save(*args: Any, **kwargs: Any) -> str:
        found.done.append(("saved", *args, *kwargs.items()))
        return "path"

    found.save, found.weights = save, lambda model, path: found.save(model, path)
    monkeypatch.setitem(sys.modules, "a_keras", types.ModuleType("a_keras"))
    monkeypatch.setitem(sys.modules, "a_keras.saving", found)
    functions = ("a_keras.saving", "save"), ("a_keras.saving", "weights")
    saves = {"a_keras": functions, "no_such_keras": (("no_such_keras.saving", "save"),)}
    monkeypatch.setattr(model_saves, "SAVES", saves)
    before_saves(lambda model: found.done.append(("told", model)))
    return found


def test_it_is_told_first_and_the_caller_gets_what_is_returned(module: Any) -> None:
    assert module.save("model", "file", overwrite=True) == "path"
    assert module.done == [("told", "model"), ("saved", "model", "file", ("overwrite", True))]


def test_a_model_that_is_given_by_name_is_found(module: Any) -> None:
    module.save(obj="model", path="file")
    assert module.done[0] == ("told", "model")


def test_without_a_model_there_is_none(module: Any) -> None:
    module.save()
    assert module.done[0] == ("told", None)


def test_a_function_that_saves_by_another_tells_twice(module: Any) -> None:
    module.weights("model", "file")
    assert module.done == [("told", "model")] * 2 + [("saved", "model", "file")]


def test_a_second_one_is_not_told(module: Any) -> None:
    before_saves(lambda model: module.done.append(("told again", model)))
    module.save("model")
    assert module.done == [("told", "model"), ("saved", "model")]


def test_a_save_that_is_told_of_in_vain_does_not_happen(module: Any) -> None:
    def fail(model: Any) -> None:
        raise ValueError("another worker is gone")

    # Anew, so that nothing is around it yet.
    module.save = lambda model: module.done.append("saved")
    before_saves(fail)
    with pytest.raises(ValueError, match="another worker is gone"):
        module.save("model")
    assert module.done == []


def test_kerases_own_files_are_told_of(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in SAVES["keras"]:
        owner = sys.modules[module]
        monkeypatch.setattr(owner, name, getattr(owner, name))
        unwrap(owner, name)
    told: list[Any] = []
    before_saves(told.append)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save_weights(str(tmp_path / "own.weights.h5"))
    assert told == [model]

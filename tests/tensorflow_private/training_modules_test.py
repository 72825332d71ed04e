"""What trains is where the names say, in the packages that are installed."""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private.training_modules import (
    OPTIMIZERS,
    SAVES,
    TPU_MODULES,
    TRAINERS,
    VARIABLES,
)


@pytest.mark.parametrize("package", TRAINERS)
def test_a_trainer_has_the_methods_that_train(package: str) -> None:
    module, name = TRAINERS[package]
    trainer = getattr(importlib.import_module(module), name)
    assert callable(trainer.fit) and callable(trainer.compile)


@pytest.mark.parametrize("package", OPTIMIZERS)
def test_an_optimizer_applies_gradients_by_the_method_that_is_named(package: str) -> None:
    assert TRAINERS.keys() == OPTIMIZERS.keys()
    for module, name, method in OPTIMIZERS[package]:
        assert callable(getattr(getattr(importlib.import_module(module), name), method))


@pytest.mark.parametrize("package", VARIABLES)
def test_a_variable_gets_what_is_stored_by_the_method_that_is_named(package: str) -> None:
    keras = importlib.import_module(package)
    module, name, method = VARIABLES[package]
    kind = getattr(importlib.import_module(module), name)
    assert issubclass(keras.Variable, kind) and callable(getattr(kind, method))


def _noting(function: Any, called: list[str]) -> Any:
    def noted(*args: Any, **kwargs: Any) -> Any:
        called.append(function.__name__)
        return function(*args, **kwargs)

    return noted


def test_whatever_saves_a_model_ends_in_a_function_that_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for package, functions in SAVES.items():
        importlib.import_module(package)
        for module, name in functions:
            owner = importlib.import_module(module)
            monkeypatch.setattr(owner, name, _noting(getattr(owner, name), called))
    for keras in (importlib.import_module("keras"), importlib.import_module("tf_keras")):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        for number, write in enumerate(_WAYS_TO_SAVE):
            called.clear()
            write(keras, model, str(tmp_path / f"{keras.__name__}-{number}"))
            assert called, (keras.__name__, number)


# Each by a Keras, with a model and a path without an ending.
_WAYS_TO_SAVE: list[Callable[[Any, Any, str], Any]] = [
    lambda keras, model, path: model.save(f"{path}.keras"),
    lambda keras, model, path: model.save(f"{path}.h5"),
    lambda keras, model, path: model.save_weights(f"{path}.weights.h5"),
    lambda keras, model, path: model.export(path),
    lambda keras, model, path: keras.models.save_model(model, f"{path}.keras"),
    lambda keras, model, path: tf.saved_model.save(model, path),
]


def test_tensorflow_has_modules_that_look_for_a_tpu() -> None:
    for prefix in TPU_MODULES:
        assert any(name.startswith(prefix) for name in sys.modules), prefix

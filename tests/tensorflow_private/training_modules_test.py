"""What trains is where the names say, in the packages that are installed."""

from __future__ import annotations

import importlib
import sys

import pytest
import tensorflow as tf  # noqa: F401

from tf_wu_shard.tensorflow_private.training_modules import (
    MODELS,
    OPTIMIZERS,
    TPU_MODULES,
    TRAINERS,
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


@pytest.mark.parametrize("package", MODELS)
def test_a_model_is_saved_by_the_methods_that_are_wrapped(package: str) -> None:
    module, name = MODELS[package]
    model = getattr(importlib.import_module(module), name)
    assert callable(model.save) and callable(model.save_weights)


def test_tensorflow_has_modules_that_look_for_a_tpu() -> None:
    for prefix in TPU_MODULES:
        assert any(name.startswith(prefix) for name in sys.modules), prefix

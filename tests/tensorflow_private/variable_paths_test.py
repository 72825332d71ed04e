"""A variable goes by the path that Keras gave it, whenever the model came to make it."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import turn_off, turn_on
from tf_wu_shard.tensorflow_private import variable_paths
from tf_wu_shard.tensorflow_private.variable_paths import note_paths, path_of

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


class Block(keras.layers.Layer):
    """Two layers that learn their sizes from the first batch."""

    def __init__(self) -> None:
        super().__init__(name="block")
        self.wide = keras.layers.Dense(48, activation="relu", name="wide")
        self.narrow = keras.layers.Dense(32, name="narrow")

    def call(self, inputs: Any) -> Any:
        """Goes through both."""
        return self.narrow(self.wide(inputs))


def test_a_report_tells_the_layers_of_a_model_apart_that_fit_builds(
    strategy_of: Strategies,
) -> None:
    with strategy_of(2).scope():
        model = keras.Sequential([Block(), keras.layers.Dense(1, name="last")], name="model")
        model.compile(keras.optimizers.Adam(name="adam_of_block"), "mse")
    inputs, targets = np.ones((8, 32), np.float32), np.ones((8, 1), np.float32)
    turn_on(min_elements=1024)
    try:
        model.fit(inputs, targets, batch_size=8, verbose=0)
    finally:
        turn_off()
    assert {v.value.name for v in model.variables} == {"kernel:0", "bias:0"}
    report = tf_wu_shard.reports()[-1]
    named = {v.name: v.slots for v in report.variables}
    assert named.keys() == {f"model/block/{layer}/kernel" for layer in ("wide", "narrow")}
    of_wide = "adam_of_block/model_block_wide_kernel_"
    assert named["model/block/wide/kernel"] == (f"{of_wide}momentum", f"{of_wide}velocity")
    assert {v.name for v in report.left_alone} == {
        *(f"model/{layer}/bias" for layer in ("block/wide", "block/narrow", "last")),
        "model/last/kernel",
    }


def test_what_no_model_made_goes_by_tensorflows_name(strategy_of: Strategies) -> None:
    with strategy_of(2).scope():
        mirrored = tf.Variable(tf.ones((2,)), name="own/scale")
        of_keras = keras.Variable(tf.ones((2,)), name="of_keras")
    assert path_of(mirrored) == "own/scale"
    assert path_of(tf.Variable(1.0, name="plain")) == "plain"
    assert path_of(of_keras.value) == "of_keras"


def test_paths_are_noted_where_keras_imports_tensorflow_itself() -> None:
    program = (
        "import tf_wu_shard, keras\n"
        "layer = keras.layers.Dense(2, name='late')\n"
        "keras.Sequential([layer], name='model').build((None, 3))\n"
        "from tf_wu_shard.tensorflow_private.variable_paths import path_of\n"
        "print([path_of(v.value) for v in layer.variables])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "['model/late/kernel', 'model/late/bias']\n", run.stderr


class Variable:
    """Makes what TensorFlow stores, or waits."""

    def __init__(self, path: Any) -> None:
        self.path, self._value = path, None

    def _initialize(self, value: Any) -> None:
        self._value = value


def test_nothing_is_noted_where_nothing_was_made_or_no_path_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module: Any = types.ModuleType("a_keras.core")
    module.Variable = Variable
    monkeypatch.setitem(sys.modules, "a_keras.core", module)
    places = {"a_keras": ("a_keras.core", "Variable", "_initialize")}
    places["renamed"] = ("a_keras.core", "Variable", "no_such_method")
    places["moved"] = ("a_keras.core", "NoSuchVariable", "_initialize")
    places["not imported"] = ("no_such_keras.core", "Variable", "_initialize")
    monkeypatch.setattr(variable_paths, "VARIABLES", places)
    monkeypatch.setattr(Variable, "_initialize", Variable._initialize)
    for _ in range(2):
        note_paths()
    Variable("late")._initialize(None)
    unnamed, named = (types.SimpleNamespace(name="kernel:0") for _ in range(2))
    Variable(None)._initialize(unnamed)
    Variable("model/kernel")._initialize(named)
    assert (path_of(unnamed), path_of(named)) == ("kernel", "model/kernel")

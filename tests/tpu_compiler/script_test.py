"""Unmodified TPU scripts are run until they train, each in a process of its own."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pytest

from tf_wu_shard.tpu_compiler import children
from tf_wu_shard.tpu_compiler.settings import Settings

FIT = """
import sys

import keras
import numpy as np
import tensorflow as tf

assert sys.argv[1:] == ["--rate", "0.1"]
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="my-tpu")
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
inputs, targets = np.zeros((1024, 4), np.float32), np.zeros((1024, 3), np.float32)
data = tf.data.Dataset.from_tensor_slices((inputs, targets))
model.fit(data.batch(5 * strategy.num_replicas_in_sync, drop_remainder=True), epochs=2)
raise AssertionError("trained")
"""

LOOP = """
import tensorflow as tf

strategy = tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver.connect())
data = tf.data.Dataset.from_tensors(tf.zeros([8])).repeat()
batches = iter(strategy.experimental_distribute_dataset(
    data.batch(2 * strategy.num_replicas_in_sync, drop_remainder=True)))
with strategy.scope():
    weight = tf.Variable(tf.zeros([8]))

def step(inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(inputs - weight))
    gradient = tape.gradient(loss, weight)
    context = tf.distribute.get_replica_context()
    weight.assign_sub(0.1 * context.all_reduce(tf.distribute.ReduceOp.SUM, gradient))

@tf.function
def train():
    for _ in tf.range(5):
        strategy.run(step, args=(next(batches),))

try:
    train()
except BaseException:
    raise SystemExit("a script may do this")
"""

FAILS = """
import tensorflow as tf

tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver(""))
raise ValueError("no data here\\nor anywhere")
"""


def trace(
    folder: pathlib.Path, script: str, *arguments: str, topology: str, sharded: bool = False
) -> Any:
    (folder / "train.py").write_text(script, encoding="utf-8")
    settings = Settings(
        topology=topology, script=str(folder / "train.py"), arguments=tuple(arguments)
    )
    with children.tracer() as worker:
        return worker.ask(
            "trace",
            settings=dataclasses.asdict(settings),
            sharded=sharded,
            hlo=str(folder / "step.pb"),
            scopes=str(folder / "scopes.json"),
        )


def test_a_keras_script_is_left_at_its_first_step(tmp_path: pathlib.Path) -> None:
    # As many replicas as none of our machines would bear.
    found = trace(tmp_path, FIT, "--rate", "0.1", topology="v5e:8x16")
    assert found.get("batch") == 5, found
    assert (tmp_path / "step.pb").stat().st_size > 0


def test_a_custom_loop_is_left_though_it_catches_everything(tmp_path: pathlib.Path) -> None:
    assert trace(tmp_path, LOOP, topology="v5e:2x2").get("batch") == 2


@pytest.mark.slow
def test_a_step_whose_weights_are_all_in_shards_is_a_train_step(tmp_path: pathlib.Path) -> None:
    # No bias, so that nothing is too small.
    script = FIT.replace("Input((4,))", "Input((128,))").replace(
        "zeros((1024, 4)", "zeros((1024, 128)"
    )
    script = script.replace("Dense(3)", "Dense(96, use_bias=False)").replace(
        "(1024, 3)", "(1024, 96)"
    )
    found = trace(tmp_path, script, "--rate", "0.1", topology="v5e:2x2", sharded=True)
    assert ": 1 of 1 variables" in found.get("said", ""), found


def test_a_failing_script_is_told_with_its_line(tmp_path: pathlib.Path) -> None:
    error = trace(tmp_path, FAILS, topology="v5e:2x2")["error"]
    assert error.endswith("train.py, line 5 raised ValueError: no data here")


@pytest.mark.slow
def test_a_script_that_never_trains_is_told(tmp_path: pathlib.Path) -> None:
    error = trace(tmp_path, "import tensorflow\n", topology="v5e:2x2")["error"]
    assert error.endswith("ended before: no train step was traced under a TPUStrategy")

"""Steps that train embeddings: what the pass shards on a strategy, and the same step as a file.

Run as a module, with a ground ("mirrored" or "tpu"), a folder and some of `CASES`; prints reports
of the traced steps as JSON and writes each step, traced on one device, as a SavedModel.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
import tf_keras

import tf_wu_shard
from tests.model_files.exported import save

REPLICAS = 4
BATCH, LENGTH, WIDTH = 8, 7, 64

_V1 = tf.compat.v1.train

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.01, use_ema=True),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(),
    "clipnorm": lambda: keras.optimizers.Adam(clipnorm=1.0),
    "clipvalue": lambda: keras.optimizers.Adam(clipvalue=1.0),
    "global_clipnorm": lambda: keras.optimizers.Adam(global_clipnorm=1.0),
    "momentum_clipped": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0),
    "adamw": lambda: keras.optimizers.AdamW(amsgrad=True, use_ema=True),
    "adagrad": lambda: keras.optimizers.Adagrad(),
    "adadelta": lambda: keras.optimizers.Adadelta(),
    "adafactor": lambda: keras.optimizers.Adafactor(),
    "rmsprop": lambda: keras.optimizers.RMSprop(centered=True, momentum=0.9),
    "lamb": lambda: keras.optimizers.Lamb(),
    "lion": lambda: keras.optimizers.Lion(),
    "loss_scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()),
    "muon": lambda: keras.optimizers.Muon(),
    "tf_keras_adam": lambda: tf_keras.optimizers.legacy.Adam(),
    "tf_keras_momentum": lambda: tf_keras.optimizers.legacy.SGD(0.1, momentum=0.9),
    "v1_momentum": lambda: _V1.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "v1_ftrl": lambda: _V1.FtrlOptimizer(0.1),
    "v1_sgd": lambda: _V1.GradientDescentOptimizer(0.1),
}

# How the tables are used, each with the optimizers that it is trained by.
MODELS: dict[str, tuple[str, ...]] = {
    "once": tuple(OPTIMIZERS),
    "twice": ("adam", "sgd", "v1_momentum"),
    "two_tables": ("adam", "adagrad", "momentum"),
    "same_ids": ("lion", "v1_ftrl"),
    "tied": ("adam", "sgd", "v1_momentum"),
    "positions": ("adam", "momentum"),
}
CASES = [f"{model}-{name}" for model, names in MODELS.items() for name in names]


class Tables(tf.Module):
    """A step that looks rows of tables up, makes a mean of them and puts a layer behind."""

    def __init__(self, model: str, optimizer: Any) -> None:
        super().__init__()
        self._model = model
        self.table = keras.layers.Embedding(1000, WIDTH, name="table")
        self.other = keras.layers.Embedding(500, WIDTH, name="other")
        self.dense = keras.layers.Dense(128, name="dense")
        layers = [self.table, self.dense]
        if model in ("two_tables", "same_ids", "positions"):
            layers.append(self.other)
        for layer in layers:
            layer.build((None, WIDTH))
        # What is no part of Keras keeps slots that a module may not keep again.
        self._optimizer = lambda: optimizer
        self._variables = [v for layer in layers for v in layer.trainable_variables]
        if isinstance(optimizer, keras.optimizers.Optimizer):
            optimizer.build(self._variables)
            self.optimizer = optimizer
        self.kept: list[tf.Variable] = []

    def _loss(self, ids: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        seen = self.table(ids)
        if self._model == "twice":
            seen += self.table(ids[:, ::-1] // 2)
        if self._model == "two_tables":
            seen += self.other(ids // 2)
        if self._model == "same_ids":
            seen += self.other(ids)
        if self._model == "positions":
            seen += self.other(tf.range(LENGTH))
        seen = tf.reduce_mean(seen, axis=1)
        loss = tf.reduce_mean((self.dense(seen) - targets) ** 2)
        if self._model == "tied":
            table = tf.convert_to_tensor(self.table.embeddings)
            loss += tf.reduce_mean(tf.matmul(seen, table, transpose_b=True) ** 2)
        return loss

    def step(self, ids: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """One step of a replica; returns its loss."""
        weights = [v.value for v in self._variables]
        with tf.GradientTape() as tape:
            loss = self._loss(ids, targets)
        optimizer = self._optimizer()
        of_keras = isinstance(optimizer, keras.optimizers.Optimizer)
        trained = self._variables if of_keras else weights
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, trained, strict=True))
        return loss


def _traced(run: Callable[..., Any]) -> Any:
    specs = [tf.TensorSpec((BATCH, LENGTH), tf.int32), tf.TensorSpec((BATCH, 128))]
    traced = tf.function(run, input_signature=specs)
    traced.get_concrete_function()
    return traced


def _reported(strategy: tf.distribute.Strategy, case: str) -> dict[str, Any]:
    """What the pass says of the step on a strategy."""
    model, _, name = case.partition("-")
    tf_wu_shard.clear_reports()
    with strategy.scope():
        tables = Tables(model, OPTIMIZERS[name]())

    def train(ids: tf.Tensor, targets: tf.Tensor) -> Any:
        return strategy.run(tables.step, (ids, targets))

    _traced(train)
    return json.loads(tf_wu_shard.reports()[-1].to_json())


def export(folder: pathlib.Path, case: str) -> pathlib.Path:
    """Writes the step of one device, one of `CASES`, into a folder of its own; returns that."""
    model, _, name = case.partition("-")
    keras.backend.clear_session()
    optimizer = OPTIMIZERS[name]()
    tables = Tables(model, optimizer)
    tables.train = _traced(tables.step)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        used = tables.train.get_concrete_function().graph.variables
        tables.kept = list({id(v): v for v in (*used, *optimizer.variables())}.values())
    return save(tables, folder / case, {})


def main(ground: str, folder: pathlib.Path, cases: list[str]) -> None:
    """See the module."""
    strategy: tf.distribute.Strategy
    if ground == "tpu":
        strategy = tf_wu_shard.emulation.emulated_tpu_strategy(REPLICAS)
    else:
        (device,) = tf.config.list_physical_devices("CPU")
        one = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(device, [one] * REPLICAS)
        strategy = tf.distribute.MirroredStrategy([f"cpu:{number}" for number in range(REPLICAS)])
    tf.config.optimizer.set_experimental_options(
        {"weight_update_sharding": tf_wu_shard.ShardingOptions()}
    )
    found = {case: _reported(strategy, case) for case in cases}
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})
    for case in cases:
        export(folder, case)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:])

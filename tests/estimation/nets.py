"""A small net of nested layers, and a sharded step of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard.report.report import Report


def net(dtype: str = "float32") -> keras.Model:
    """A table, a norm, and kernels of which the last is too small for a TPU's tiles."""
    ids = keras.Input((6,), dtype="int32")
    inner = keras.Sequential([keras.layers.Dense(80, name="hidden", dtype=dtype)], name="inner")
    seen = keras.layers.Embedding(130, 48, name="table", dtype=dtype)(ids)
    seen = keras.layers.LayerNormalization(name="norm", dtype=dtype)(inner(seen))
    flat = keras.layers.Flatten()(seen)
    return keras.Model(ids, keras.layers.Dense(3, name="out", dtype=dtype)(flat))


def trained(
    strategy: tf.distribute.Strategy, optimizer: Callable[[], Any], dtype: str = "float32"
) -> tuple[keras.Model, Report]:
    """A model after a sharded step, and the report that says most of it."""
    tf_wu_shard.clear_reports()
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": True})
    with strategy.scope():
        model = net(dtype)
        model.compile(optimizer(), "mse")
    replicas = strategy.num_replicas_in_sync
    ids = np.arange(replicas * 12, dtype=np.int32).reshape(-1, 6) % 130
    model.fit(ids, np.ones((replicas * 2, 3)), batch_size=replicas * 2, verbose=0)
    reports = tf_wu_shard.reports()
    assert reports
    return model, max(reports, key=lambda report: len(report.variables))

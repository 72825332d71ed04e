"""An embedding and a dense layer behind it that train on ids in a custom loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Optimizer = Callable[[], Any]

KERAS: dict[str, Optimizer] = {
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "sgd_with_decay": lambda: keras.optimizers.SGD(0.1, weight_decay=0.01, use_ema=True),
    "adamw": lambda: keras.optimizers.AdamW(0.01, amsgrad=True),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.001),
    "lion": lambda: keras.optimizers.Lion(0.01),
    "clipnorm": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
}

V1: dict[str, Optimizer] = {
    "momentum": lambda: tf.compat.v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adam": lambda: tf.compat.v1.train.AdamOptimizer(0.01),
    "adagrad": lambda: tf.compat.v1.train.AdagradOptimizer(0.1),
    "centered_rmsprop": lambda: tf.compat.v1.train.RMSPropOptimizer(0.01, centered=True),
    "ftrl": lambda: tf.compat.v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
}

# Examples of each replica, step by step: unlike ones take the padded way of gathering.
BATCHES = ((4, 4), (3, 4), (4, 1), (0, 2), (4, 4))


def train_embedding(
    strategy: tf.distribute.MirroredStrategy,
    optimizer: Optimizer,
    *,
    rows: int = 50,
    width: int = 16,
    dtype: str = "int32",
    shared: bool = False,
    batches: Sequence[Sequence[int]] = BATCHES,
) -> list[Any]:
    """Trains an embedding; returns it, the other weights, and the slots.

    Ids repeat in a batch and across replicas, and half of the rows are never looked up.
    """
    random = np.random.default_rng(1)
    with strategy.scope():
        table = keras.layers.Embedding(rows, width)
        dense = keras.layers.Dense(3)
        table.build()
        dense.build((None, 6 * width))
        chosen = optimizer()
        if isinstance(chosen, keras.optimizers.Optimizer):
            chosen.build([*table.trainable_variables, *dense.trainable_variables])
    weights = [v.value for v in (*table.trainable_variables, *dense.trainable_variables)]

    def step(ids: tf.Tensor, targets: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            seen = table(ids)
            if shared:
                seen += table(ids[:, ::-1] // 2)
            loss = tf.reduce_sum((dense(tf.reshape(seen, (-1, 6 * width))) - targets) ** 2)
        gradients = tape.gradient(loss, weights)
        if isinstance(chosen, keras.optimizers.Optimizer):
            own = [*table.trainable_variables, *dense.trainable_variables]
            chosen.apply_gradients(zip(gradients, own, strict=True))
        else:
            chosen.apply_gradients(zip(gradients, weights, strict=True))

    train_step = tf.function(
        lambda ids, targets: strategy.run(step, (ids, targets)), reduce_retracing=True
    )
    for sizes in batches:
        ids = [random.integers(0, rows // 2, (n, 6)).astype(dtype) for n in sizes]
        for own in ids:
            own[:, :2] = random.integers(0, 3, own[:, :2].shape)
        targets = [random.standard_normal((n, 3), dtype=np.float32) for n in sizes]
        train_step(per_replica(strategy, ids), per_replica(strategy, targets))
    if isinstance(chosen, keras.optimizers.Optimizer):
        slots = [v.value for v in chosen.variables if v.shape.rank]
    else:
        names = chosen.get_slot_names()
        slots = [chosen.get_slot(w, name) for w in weights for name in names]
    return [*weights, *(slot for slot in slots if slot is not None)]


def per_replica(strategy: tf.distribute.MirroredStrategy, values: Sequence[np.ndarray]) -> Any:
    """A value of its own for each replica."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group])
    )

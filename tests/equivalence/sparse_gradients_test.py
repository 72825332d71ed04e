"""Embeddings whose rows are updated in shards train bit for bit as unsharded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.equivalence.in_process import StrategyOf, both, in_shards

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
_BATCHES = ((4, 4), (3, 4), (4, 1), (0, 2), (4, 4))


def train_embedding(
    strategy: tf.distribute.MirroredStrategy,
    optimizer: Optimizer,
    *,
    rows: int = 50,
    width: int = 16,
    dtype: str = "int32",
    shared: bool = False,
    batches: Sequence[Sequence[int]] = _BATCHES,
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


def _check(train: Callable[[], list[Any]]) -> None:
    runs = both(train)
    assert runs.apart == []
    assert any(np.any(value) for value in runs.sharded[3:])
    tables = [v for v in runs.variables[3:] if v.shape == runs.variables[0].shape]
    assert tables
    assert all(in_shards(variable) for variable in tables)
    assert all("failed" not in str(report) for report in runs.reports)


@pytest.mark.parametrize("optimizer", sorted(KERAS))
def test_an_embeddings_slots_live_in_shards_of_rows(
    strategy_of: StrategyOf, optimizer: str
) -> None:
    strategy = strategy_of(2)
    _check(lambda: train_embedding(strategy, KERAS[optimizer]))


@pytest.mark.parametrize("optimizer", sorted(V1))
def test_lazy_updates_exchange_rows_and_no_table(strategy_of: StrategyOf, optimizer: str) -> None:
    strategy = strategy_of(2)
    _check(lambda: train_embedding(strategy, V1[optimizer]))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("rows", "width", "dtype"), [(33, 5, "int64"), (7, 16, "int32"), (20, 1, "int32")]
)
def test_rows_that_do_not_divide_evenly(
    strategy_of: StrategyOf, rows: int, width: int, dtype: str, lazy: bool
) -> None:
    strategy = strategy_of(2)
    optimizer = V1["momentum"] if lazy else KERAS["adamw"]
    _check(lambda: train_embedding(strategy, optimizer, rows=rows, width=width, dtype=dtype))


@pytest.mark.parametrize("lazy", [False, True])
def test_an_embedding_that_two_inputs_share(strategy_of: StrategyOf, lazy: bool) -> None:
    strategy = strategy_of(2)
    optimizer = V1["adam"] if lazy else KERAS["nadam"]
    _check(lambda: train_embedding(strategy, optimizer, shared=True))


@pytest.mark.parametrize("lazy", [False, True])
def test_gradients_summed_on_one_device(summing_strategy_of: StrategyOf, lazy: bool) -> None:
    # Four replicas: entries are not added up before each row's sum, in one order in both runs.
    strategy = summing_strategy_of(4)
    optimizer = V1["ftrl"] if lazy else KERAS["ftrl"]
    batches = ((2, 1, 3, 2), (1, 1, 1, 1))
    _check(lambda: train_embedding(strategy, optimizer, batches=batches))


def test_an_update_without_slots_is_left_alone_and_says_why(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    runs = both(lambda: train_embedding(strategy, lambda: keras.optimizers.SGD(0.1)))
    assert runs.apart == []
    assert "has no slot: all is done" in str(runs.reports[-1])

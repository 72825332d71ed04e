"""Trains the same thing twice in this process, without and with the flag, and compares.

For scenarios small enough to share the test's process; flag_test.py holds the flag-off graph to be
the graph of today, which makes such a run a fair baseline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

StrategyOf = Callable[[int], tf.distribute.MirroredStrategy]


@dataclasses.dataclass(frozen=True)
class Both:
    """What two runs of one function left.

    Attributes:
        unsharded: The values of the variables it returned, without the flag.
        sharded: With it.
        variables: The variables of the sharded run.
        reports: The pass's reports of the sharded run.
    """

    unsharded: list[np.ndarray]
    sharded: list[np.ndarray]
    variables: list[Any]
    reports: tuple[Any, ...]

    @property
    def apart(self) -> list[int]:
        """Positions of the variables that are not bit-identical."""
        pairs = zip(self.unsharded, self.sharded, strict=True)
        return [i for i, (one, other) in enumerate(pairs) if one.tobytes() != other.tobytes()]


def turn_on(**options: Any) -> None:
    """Sets the flag; every variable with an element is large enough, unless said otherwise."""
    chosen = tf_wu_shard.ShardingOptions(**({"min_elements": 1} | options))
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": chosen})


def turn_off() -> None:
    """Takes the flag back."""
    tf.config.optimizer.set_experimental_options({"weight_update_sharding": False})


def both(train: Callable[[], Sequence[Any]], **options: Any) -> Both:
    """Runs `train` without and with the flag, from the same random seed.

    Args:
        train: Makes a model, trains it and returns its weights and slots.
        **options: Of `tf_wu_shard.ShardingOptions`; min_elements is 1 unless given.

    Returns:
        Both runs' values.
    """
    turn_off()
    keras.utils.set_random_seed(7)
    unsharded = [variable.numpy() for variable in train()]
    tf_wu_shard.clear_reports()
    turn_on(**options)
    keras.utils.set_random_seed(7)
    variables = list(train())
    turn_off()
    sharded = [variable.numpy() for variable in variables]
    return Both(unsharded, sharded, variables, tf_wu_shard.reports())


def in_shards(variable: Any) -> bool:
    """Whether a variable's storage is in shards."""
    inner = variable.value if isinstance(variable, keras.Variable) else variable
    return sharded_slot_of(original_handle(inner.values[0])) is not None


def examples(count: int, width: int = 6, outputs: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [count, width] and targets [count, outputs], float32, the same every time."""
    random = np.random.default_rng(5)
    inputs = random.standard_normal((count, width), dtype=np.float32)
    return inputs, random.standard_normal((count, outputs), dtype=np.float32)


def dense_model(width: int = 6, hidden: int = 7, outputs: int = 3) -> keras.Model:
    """An uncompiled net of two Dense layers, [batch, width] -> [batch, outputs]."""
    return keras.Sequential(
        [
            keras.layers.Input((width,)),
            keras.layers.Dense(hidden, activation="tanh"),
            keras.layers.Dense(outputs),
        ]
    )


def compiled(
    strategy: tf.distribute.Strategy,
    build: Callable[[], keras.Model] = dense_model,
    optimizer: Callable[[], keras.optimizers.Optimizer] = keras.optimizers.Adam,
    built: bool = False,
    **compiling: Any,
) -> keras.Model:
    """A model of the strategy with a mean squared error, unless `compiling` says otherwise.

    A custom loop wants its optimizer `built`: slots cannot be made inside its traced step.
    """
    with strategy.scope():
        model = build()
        model.compile(optimizer(), **({"loss": keras.losses.MeanSquaredError()} | compiling))
        if built:
            model.optimizer.build(model.trainable_variables)
    return model


def state(model: keras.Model) -> list[keras.Variable]:
    """A model's weights and its optimizer's variables."""
    return [*model.weights, *model.optimizer.variables]


def step_of(
    strategy: tf.distribute.Strategy, model: keras.Model, count: int = 4, *, backward: bool = False
) -> Any:
    """A traced train step of a custom loop on the same examples every time; returns the loss.

    Examples that stand `backward` change nothing but the order of sums.
    """
    inputs, targets = examples(count, model.input_shape[-1], model.output_shape[-1])
    if backward:
        inputs, targets = inputs[::-1], targets[::-1]

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - targets) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def train_step() -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step), axis=None)

    return tf.function(train_step)

"""One model under `model.fit` as a user has it, one step at a time on demand.

The sharded and the unsharded mode differ in the flag and in nothing else. The third mode,
no_update, has an optimizer that takes the gradients and leaves it at that: no reduction, no slots,
no new weights. TensorFlow's devices are set up here, so it is for a fresh process, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tf_wu_shard import models
from tf_wu_shard.bench import optimizers
from tf_wu_shard.bench.settings import Settings
from tf_wu_shard.config import FLAG

# Global batches that are fed in turn.
BATCHES = 4


class UnusedGradients(keras.optimizers.Optimizer):
    """Takes gradients and applies none, in a way that no graph optimizer can see through.

    All gradients are held together, as a reduction needs them, and one element of each is read
    into a variable of the replica's own; with control edges instead, TensorFlow's dependency
    optimizer would drop the gradients' computation.
    """

    def __init__(self) -> None:
        """The learning rate that every Keras optimizer must have is not used."""
        super().__init__(learning_rate=0.0, name="unused_gradients")

    def build(self, variables: list[keras.Variable]) -> None:
        """Makes the variable that is read into; `variables` get no slots."""
        super().build(variables)
        self._touched = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    def apply_gradients(self, grads_and_vars: Any) -> None:
        """Reads one element of each gradient, all of them computed by then."""
        gradients = [tf.convert_to_tensor(gradient) for gradient, _ in grads_and_vars]
        held = tf.raw_ops.IdentityN(input=gradients)
        first = [tf.cast(tf.reshape(tensor, [-1])[0], tf.float32) for tensor in held]
        self._touched.assign(tf.add_n(first))

    def update_step(self, *_: Any) -> None:
        """Never called; Keras wants it defined."""
        raise AssertionError("an update of a step without one")


def compiled_model(settings: Settings, mode: str) -> keras.Model:
    """Returns the model, compiled under a fresh strategy, with the flag set as the mode says.

    Args:
        settings: What is measured.
        mode: One of `tf_wu_shard.bench.settings.MODES`.

    Raises:
        OptionError: There is no such model, or it has no such size.
    """
    strategy = mirrored_strategy(settings.replicas)
    if mode == "sharded":
        shard_or_raise(settings.min_elements)
    keras.utils.set_random_seed(settings.seed)
    with strategy.scope():
        model = models.build(settings.model, **settings.model_sizes)
        if mode == "no_update":
            optimizer = UnusedGradients()
        else:
            optimizer = optimizers.make(settings.optimizer, settings.epsilon)
        model.compile(optimizer=optimizer, loss=models.loss(settings.model))
    return model


def mirrored_strategy(replicas: int) -> tf.distribute.Strategy:
    """Returns a MirroredStrategy over that many logical CPU devices, made now."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    )
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])


def shard_or_raise(min_elements: int | None = None, dialect: str = "auto") -> None:
    """Turns the flag on, for steps of any size; one in which nothing can be sharded raises.

    Args:
        min_elements: As in `tf_wu_shard.ShardingOptions`.
        dialect: The same.
    """
    options = tf_wu_shard.ShardingOptions(
        min_elements=min_elements, min_step_elements=1, dialect=dialect, on_refusal="raise"
    )
    tf.config.optimizer.set_experimental_options({FLAG: options})


def num_bytes(variables: Sequence[keras.Variable]) -> int:
    """Returns the bytes of whole variables, each counted once."""
    return sum(
        int(np.prod(variable.shape)) * np.dtype(variable.dtype).itemsize for variable in variables
    )


def slot_bytes(model: keras.Model) -> int:
    """Returns the bytes of a model's whole slots, each counted once."""
    # Counters and rates are scalars; what is as large as a weight is a slot.
    return num_bytes([one for one in model.optimizer.variables if len(one.shape)])


def examples(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Returns (inputs, targets) of `BATCHES` global batches, in the order they are fed."""
    count = BATCHES * settings.replicas * settings.batch
    return models.data(settings.model, count, seed=settings.seed, **settings.model_sizes)


def fit(model: keras.Model, settings: Settings, between: Callable[..., None]) -> None:
    """Runs `model.fit` without end; leave it from `between` by raising.

    Args:
        model: What `compiled_model` returned.
        settings: The same.
        between: Called before the first step with no argument, and after each with its time in
            seconds and the mean loss so far.
    """
    dataset = tf.data.Dataset.from_tensor_slices(examples(settings))
    dataset = dataset.batch(settings.replicas * settings.batch, drop_remainder=True).repeat()
    model.fit(dataset, epochs=1, verbose=0, callbacks=[_Stopwatch(between)])


class _Stopwatch(keras.callbacks.Callback):
    """Times each call of the train function and lets `between` block before the next."""

    def __init__(self, between: Callable[..., None]) -> None:
        super().__init__()
        self._between = between
        self._start = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self._between()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # The number is read first: a step is over when its results are there.
        mean_loss = float(logs["loss"])
        self._between(time.perf_counter() - self._start, mean_loss)

"""Training that may be killed in the middle of a step, and that goes on from what it saved.

    python -m tests.equivalence.interrupted_run FOLDER fit|loop

Kills its own process by SIGKILL while the gradient of step `DEADLY` is computed: at that point some
weights of that step may be updated and others not.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.in_process import dense_model, examples, turn_on
from tests.strategies import mirrored_strategy

# Each epoch, and each interval between checkpoints of the custom loop, has STEPS steps.
EPOCHS, STEPS, BATCH, REPLICAS = 3, 4, 4, 2
DEADLY = 2 * STEPS - 1


class Switch:
    """Counts the steps whose gradient is computed and kills the process in a given one.

    Each replica presses it once a step; a step counts when its first replica comes.
    """

    def __init__(self, deadly: int | None) -> None:
        self._deadly = deadly
        self._pressed = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many steps have computed a gradient."""
        return (self._pressed + 1) // REPLICAS

    def __call__(self, value: tf.Tensor) -> tf.Tensor:
        """The value itself, and its gradient itself; computing that presses."""

        def press(gradient: np.ndarray) -> np.ndarray:
            with self._lock:
                self._pressed += 1
            if self.count == self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            return gradient

        @tf.custom_gradient
        def same(inner: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tf.Tensor]]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                counted = tf.numpy_function(press, [upstream], upstream.dtype)
                return tf.ensure_shape(counted, upstream.shape)

            return tf.identity(inner), gradient

        return same(value)


class _MeanSquares(keras.losses.Loss):
    def __init__(self, switch: Switch) -> None:
        super().__init__()
        self._switch = switch

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        # Keras first builds the model outside of any replica; that gradient is never computed.
        y_pred = self._switch(y_pred)
        return tf.reduce_mean((y_pred - y_true) ** 2, axis=-1)


def train(
    strategy: tf.distribute.Strategy, folder: pathlib.Path, way: str, deadly: int | None
) -> tuple[keras.Model, int]:
    """Trains `EPOCHS` epochs, or what is left of them after what the folder holds.

    Args:
        strategy: Of 2 replicas.
        folder: Where to save, and to go on from.
        way: "fit", with BackupAndRestore, or "loop", with a CheckpointManager.
        deadly: The gradient at which to die, or None.

    Returns:
        The model, and how many steps it took here.
    """
    switch = Switch(deadly)
    inputs, targets = examples(EPOCHS * STEPS * BATCH)
    keras.utils.set_random_seed(11)
    with strategy.scope():
        model = dense_model()
        optimizer = keras.optimizers.AdamW(0.02)
        optimizer.build(model.trainable_variables)
        model.compile(optimizer, _MeanSquares(switch))
    if way == "fit":
        model.fit(
            *(inputs[: STEPS * BATCH], targets[: STEPS * BATCH]),
            **{"batch_size": BATCH, "epochs": EPOCHS, "shuffle": False, "verbose": 0},
            callbacks=[keras.callbacks.BackupAndRestore(str(folder))],
        )
        return model, switch.count
    done = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint)
    while int(done) < EPOCHS * STEPS:
        start = int(done) * BATCH
        model.train_on_batch(inputs[start : start + BATCH], targets[start : start + BATCH])
        done.assign_add(1)
        if int(done) % STEPS == 0:
            manager.save()
    return model, switch.count


def main(folder: str, way: str) -> None:
    """Trains, sharded, until the deadly step."""
    turn_on(on_refusal="raise")
    strategy = mirrored_strategy()
    train(strategy, pathlib.Path(folder), way, DEADLY)


if __name__ == "__main__":
    main(*sys.argv[1:])

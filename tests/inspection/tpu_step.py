"""Exports a step of a TPU program; in a process of its own, as emulation changes what runs."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import tensorflow as tf

import tf_wu_shard
from tests.model_files.exported import Step, save


def export(folder: pathlib.Path, replicas: int) -> None:
    """Writes the classifier with a step that `TPUStrategy` runs, as saved_model.save does.

    Args:
        folder: Where to.
        replicas: How many replicas the program is for.
    """
    strategy = tf_wu_shard.emulation.emulated_tpu_strategy(replicas)
    with strategy.scope():
        step = Step("adam")

    class OnTpu(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((8, 16)), tf.TensorSpec((8,), tf.int32)])
        def train(self, x: Any, y: Any) -> Any:
            def one(x: Any, y: Any) -> Any:
                with tf.GradientTape() as tape:
                    losses = tf.keras.losses.sparse_categorical_crossentropy(
                        y, step.model(x), from_logits=True
                    )
                    loss = tf.reduce_mean(losses)
                weights = step.model.trainable_variables
                gradients = tape.gradient(loss, weights)
                step.optimizer.apply_gradients(zip(gradients, weights, strict=True))
                return loss

            return strategy.reduce("SUM", strategy.run(one, (x, y)), axis=None)

    module = OnTpu()
    module.model, module.optimizer = step.model, step.optimizer
    save(module, folder, {"train": module.train})


if __name__ == "__main__":
    export(pathlib.Path(sys.argv[1]), int(sys.argv[2]))

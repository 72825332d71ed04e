"""A classifier whose train step a strategy runs on its replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.model_files.exported import Step


class OnReplicas(tf.Module):
    """The classifier with a step that all replicas run."""

    def __init__(self, strategy: tf.distribute.Strategy, optimizer: str) -> None:
        """Makes the classifier in the strategy's scope.

        Args:
            strategy: What runs the step.
            optimizer: A Keras optimizer's name.
        """
        super().__init__()
        with strategy.scope():
            step = Step(optimizer)
        self.model, self.optimizer = step.model, step.optimizer
        self._strategy = strategy

    @tf.function(input_signature=[tf.TensorSpec((8, 16)), tf.TensorSpec((8,), tf.int32)])
    def train(self, x: Any, y: Any) -> Any:
        """One step; returns the sum of the replicas' losses."""

        def one(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                losses = tf.keras.losses.sparse_categorical_crossentropy(
                    y, self.model(x), from_logits=True
                )
                loss = tf.reduce_mean(losses)
            weights = self.model.trainable_variables
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return loss

        return self._strategy.reduce("SUM", self._strategy.run(one, (x, y)), axis=None)

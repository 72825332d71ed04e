"""Real SavedModels, exported with their train step as a function."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from typing import Any

import tensorflow as tf


class Step(tf.Module):
    """A classifier of two layers with its train step and its predictions.

    Attributes:
        model: The classifier.
        optimizer: What trains it.
    """

    def __init__(self, optimizer: Any) -> None:
        """Makes the classifier.

        Args:
            optimizer: A Keras optimizer or its name.
        """
        super().__init__()
        self.model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((16,)),
                tf.keras.layers.Dense(64, activation="relu", name="hidden"),
                tf.keras.layers.Dense(10, name="out"),
            ],
            name="sequential",
        )
        if isinstance(optimizer, str):
            # Named, as Keras counts what it names itself.
            optimizer = {"class_name": optimizer, "config": {"name": optimizer}}
        self.optimizer = tf.keras.optimizers.get(optimizer)
        self.optimizer.build(self.model.trainable_variables)

    @tf.function(input_signature=[tf.TensorSpec((8, 16)), tf.TensorSpec((8,), tf.int32)])
    def train(self, x: Any, y: Any) -> Any:
        """One step; returns the loss."""
        with tf.GradientTape() as tape:
            predicted = self.model(x, training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(y, predicted, from_logits=True)
            loss = tf.reduce_mean(losses)
        weights = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    @tf.function(input_signature=[tf.TensorSpec((None, 16))])
    def predict(self, x: Any) -> Any:
        """The logits."""
        return self.model(x)


def save(module: tf.Module, folder: pathlib.Path, signatures: dict[str, Any]) -> pathlib.Path:
    """Exports a module as the documentation says; returns the folder."""
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(folder), signatures=signatures, options=options)
    return folder


@functools.cache
def _folder(optimizer: str | None) -> tempfile.TemporaryDirectory[str]:
    """A folder that goes with the process, with the classifier in it."""
    folder = tempfile.TemporaryDirectory(prefix="exported_")
    step = Step(optimizer or "sgd")
    if optimizer is not None:
        save_step(step, pathlib.Path(folder.name))
        return folder
    predictor = tf.Module()
    predictor.model, predictor.predict = step.model, step.predict
    save(predictor, pathlib.Path(folder.name), {"serving_default": step.predict})
    return folder


def exported(optimizer: str | None = "adam") -> pathlib.Path:
    """The classifier as a SavedModel, made once a process; None for one without a train step."""
    return pathlib.Path(_folder(optimizer).name)


def save_step(step: Step, folder: pathlib.Path) -> pathlib.Path:
    """Exports the classifier; returns the folder."""
    return save(step, folder, {"serving_default": step.predict, "train": step.train})

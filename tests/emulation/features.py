"""Small trainings with Keras, one for each feature that must mean the same on emulated replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

layers, optimizers = keras.layers, keras.optimizers

EXAMPLES, WIDTH, CLASSES = 64, 8, 3
BATCH, EPOCHS = 16, 2


class Feature(NamedTuple):
    """One training.

    Attributes:
        model: Makes the model, from [batch, WIDTH] to logits [batch, CLASSES].
        optimizer: Makes the optimizer.
        compiling: More for `compile`.
        examples: How many of the examples it sees in an epoch.
        afterwards: Also evaluate and predict.
    """

    model: Callable[[], keras.Model]
    optimizer: Callable[[], keras.optimizers.Optimizer]
    compiling: Mapping[str, Any] = {}
    examples: int = EXAMPLES
    afterwards: bool = False


def dense(*between: Callable[[], keras.layers.Layer], policy: str = "float32") -> keras.Model:
    """Two Dense layers with others in between."""
    return keras.Sequential(
        [
            layers.Input((WIDTH,)),
            layers.Dense(16, activation="tanh", dtype=policy),
            *(make() for make in between),
            layers.Dense(CLASSES),
        ]
    )


def _recurrent() -> keras.Model:
    """Reads four steps forwards and backwards; those that are all zeros are skipped."""
    inputs = layers.Input((WIDTH,))
    steps = layers.Reshape((4, 2))(inputs)
    zeros = layers.Lambda(lambda x: tf.where(x > 0.5, x, 0.0), output_shape=(4, 2))(steps)
    states = layers.Bidirectional(layers.LSTM(5))(layers.Masking()(zeros))
    return keras.Model(inputs, layers.Dense(CLASSES)(states))


def _embedded(densify: bool) -> keras.Model:
    """Looks rows of a table up; its gradient is sparse, or densified, as a TPU does to sum it."""

    class Table(keras.layers.Embedding):
        def call(self, inputs: Any) -> Any:
            table = tf.convert_to_tensor(self.embeddings)
            return tf.gather(table * 1.0 if densify else table, inputs)

    inputs = layers.Input((WIDTH,))
    words = layers.Lambda(lambda x: tf.cast(x * 20, tf.int32), output_shape=(WIDTH,))(inputs)
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.Flatten()(Table(20, 5)(words))))


def _synchronized() -> keras.Model:
    """Normalizes by the batch of all replicas."""
    return dense(lambda: layers.BatchNormalization(synchronized=True))


def _scaled() -> keras.optimizers.Optimizer:
    return optimizers.LossScaleOptimizer(
        optimizers.Adam(0.01), initial_scale=2.0**10, dynamic_growth_steps=2
    )


def _adam(**options: Any) -> Callable[[], keras.optimizers.Optimizer]:
    rate = options.pop("learning_rate", 0.01)
    return lambda: optimizers.Adam(rate, **options)


def _dropping() -> keras.Model:
    """Normalizes by each replica's own batch, and drops."""
    return dense(layers.BatchNormalization, lambda: layers.Dropout(0.3, seed=5))


_schedule = optimizers.schedules.ExponentialDecay(0.01, 3, 0.5)

FEATURES = {
    "adam": Feature(dense, _adam(), afterwards=True),
    "partial_batch": Feature(dense, _adam(), examples=EXAMPLES - 6),
    "momentum_clip_norm": Feature(
        dense, lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True, clipnorm=0.1)
    ),
    "adamw_schedule_clip_global_norm": Feature(
        dense, lambda: optimizers.AdamW(_schedule, global_clipnorm=0.1)
    ),
    "accumulation": Feature(dense, _adam(gradient_accumulation_steps=2)),
    "loss_scaling": Feature(dense, _scaled),
    "moving_average": Feature(dense, _adam(use_ema=True, ema_overwrite_frequency=2)),
    "steps_per_execution": Feature(dense, _adam(), {"steps_per_execution": 3}),
    "compiled": Feature(dense, _adam(), {"jit_compile": True}),
    "masked_bidirectional_lstm": Feature(_recurrent, _adam()),
    "sync_batch_norm": Feature(_synchronized, _adam()),
    "batch_norm_dropout": Feature(_dropping, _adam(), afterwards=True),
    "bfloat16": Feature(lambda: dense(policy="mixed_bfloat16"), _adam()),
    "embedding": Feature(lambda: _embedded(densify=False), _adam()),
    "dense_embedding": Feature(lambda: _embedded(densify=True), _adam()),
}


def examples() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Inputs [EXAMPLES, WIDTH] between 0 and 1 and classes [EXAMPLES], the same every time."""
    random = np.random.default_rng(0)
    inputs = random.random((EXAMPLES, WIDTH), dtype=np.float32)
    return inputs, random.integers(0, CLASSES, EXAMPLES)


def train(strategy: tf.distribute.Strategy, feature: Feature) -> dict[str, np.ndarray]:
    """Trains, and then evaluates and predicts if the feature wants it.

    Returns:
        Weights by number, the losses and accuracies of the epochs, and, afterwards, what `evaluate`
        and `predict` returned, whose last batch leaves some replicas of 4 or 8 without examples.
    """
    keras.utils.set_random_seed(3)
    inputs, classes = (array[: feature.examples] for array in examples())
    with strategy.scope():
        model = feature.model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(feature.optimizer(), loss, metrics=["accuracy"], **feature.compiling)
    history = model.fit(
        inputs, classes, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0
    ).history
    found = {f"weight {i}": variable.numpy() for i, variable in enumerate(model.weights)}
    found |= {key: np.array(values) for key, values in history.items()}
    if feature.afterwards:
        found["evaluated"] = np.array(model.evaluate(inputs[:37], classes[:37], BATCH, verbose=0))
        found["predicted"] = model.predict(inputs[:37], BATCH, verbose=0)
    return found

"""The small net that a cell of the coverage matrix trains, as its row and column want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.net import INPUTS, OUTPUTS, TARGETS, Net, repeated
from tests.equivalence.optimizers import Recipe
from tools.coverage.features import Feature

STEPS = 4

# Ids of an embedding: they repeat in a batch, and some rows of the table are never looked up.
TABLE_ROWS = 50
IDS = np.random.default_rng(8).integers(0, 30, (len(INPUTS), 6)).astype(np.int32)


class CellNet(Net):
    """A net of two matrices, `first` and `second`, as a feature wants it.

    Attributes:
        library: The Keras that it is made of.
        before: The weights before training.
    """

    library: Any = keras

    def __init__(self, strategy: tf.distribute.Strategy, recipe: Recipe, feature: Feature) -> None:
        self.recipe, self.feature = recipe, feature
        super().__init__(strategy, self.make_optimizer, self.make_model)
        self.before = [np.array(weight.numpy()) for weight in self.weights]

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight that is no bias, by the name that reports call it."""
        weights = self.model.trainable_variables
        return {v.path: tuple(v.shape) for v in weights if len(v.shape) == 2}

    def build_optimizer(self) -> None:
        """Makes the slots of Keras; those of TensorFlow 1 are made when a step is first traced."""
        if not self.recipe.fused:
            super().build_optimizer()

    def forward(self, rows: tf.Tensor) -> tf.Tensor:
        """The net's output in float32, whatever it computes in."""
        output: tf.Tensor = tf.cast(super().forward(rows), tf.float32)
        return output

    def loss(self, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        """The loss to take the gradient of."""
        loss = super().loss(rows, wanted)
        return loss if self.recipe.fused else self.optimizer.scale_loss(loss)

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """One update of all weights."""
        if not self.recipe.fused:
            super().apply(gradients)
            return
        pairs = zip(gradients, self.weights, strict=True)
        self.optimizer.apply_gradients(pairs, global_step=self._steps)

    @property
    def slots(self) -> list[Any]:
        """The optimizer's variables."""
        if not self.recipe.fused:
            return [variable.value for variable in self.optimizer.variables]
        names = sorted(self.optimizer.get_slot_names())
        return [self.optimizer.get_slot(w, name) for name in names for w in self.weights]

    def train_all(self) -> None:
        """Trains for all steps."""
        rows = IDS if self.feature.sparse else INPUTS
        if self.feature.loop == "inside":
            self.run(repeated(self.train, STEPS), 1, rows)
        elif self.feature.loop == "around":
            self._loop_around(self.spread(rows), self.spread(TARGETS))
        else:
            self.run(self.train, STEPS, rows)

    def _loop_around(self, rows: Any, wanted: Any) -> None:
        @tf.function
        def epoch(*given: Any) -> None:
            for _ in tf.range(STEPS):
                self.strategy.run(self.train, given)

        epoch(rows, wanted)

    def make_optimizer(self) -> Any:
        """The optimizer, not built."""
        if self.recipe.fused:
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False)
            return self.recipe.make(self._steps)
        made = self.recipe.make(**self.feature.options)
        return self.scaling(made) if self.feature.scaled else made

    def scaling(self, optimizer: Any) -> Any:
        """An optimizer that scales losses and applies another."""
        return keras.optimizers.LossScaleOptimizer(
            optimizer, initial_scale=8.0, dynamic_growth_steps=2
        )

    def make_model(self) -> Any:
        """The model, not compiled."""
        layers, rows = self.library.layers, IDS if self.feature.sparse else INPUTS
        first = [layers.Input(rows.shape[1:], dtype=rows.dtype.name)]
        if self.feature.sparse:
            first += [layers.Embedding(TABLE_ROWS, 16, name="first"), layers.Flatten()]
        else:
            first += [self._dense(64, "first", "tanh")]
        return self.library.Sequential([*first, self._dense(OUTPUTS, "second")])

    def _dense(self, units: int, name: str, activation: str | None = None) -> Any:
        limit = self.library.constraints.UnitNorm(axis=0) if self.feature.constrained else None
        return self.library.layers.Dense(
            units, activation, name=name, dtype=self.feature.policy, kernel_constraint=limit
        )

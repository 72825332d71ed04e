"""The net of a cell whose optimizer is one of tf_keras: a model of tf_keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from tests.equivalence.net import Net
from tools.coverage.net import CellNet

_Scaling = tf_keras.mixed_precision.LossScaleOptimizer


class LegacyCellNet(CellNet):
    """See `CellNet`."""

    library: Any = tf_keras

    def trainable(self) -> list[Any]:
        """The tf.Variables of the weights that are trained."""
        return list(self.model.trainable_variables)

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight that is no bias, by the name that reports call it."""
        return {
            v.name.removesuffix(":0"): tuple(v.shape) for v in self.weights if len(v.shape) == 2
        }

    def build_optimizer(self) -> None:
        """Makes the slots; those of legacy optimizers are made when a step is first traced."""
        if not isinstance(self._inner, tf_keras.optimizers.legacy.Optimizer):
            self._inner.build(self.trainable())

    @property
    def _inner(self) -> Any:
        wrapped = isinstance(self.optimizer, _Scaling)
        return self.optimizer.inner_optimizer if wrapped else self.optimizer

    def scaling(self, optimizer: Any) -> Any:
        """An optimizer that scales losses and applies another."""
        return _Scaling(optimizer, initial_scale=8.0, dynamic_growth_steps=2)

    def loss(self, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        """The loss to take the gradient of."""
        loss = Net.loss(self, rows, wanted)
        return self.optimizer.get_scaled_loss(loss) if self.feature.scaled else loss

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """One update of all weights."""
        if self.feature.scaled:
            gradients = self.optimizer.get_unscaled_gradients(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.weights, strict=True))

    @property
    def slots(self) -> list[Any]:
        """The optimizer's variables."""
        variables = self.optimizer.variables
        return list(variables() if callable(variables) else variables)

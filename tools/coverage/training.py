"""One cell of the coverage matrix: a small net, trained without and with the flag, and compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.in_process import both, in_shards
from tests.equivalence.matrix import relative_difference
from tests.equivalence.net import INPUTS, OUTPUTS, TARGETS, Net, repeated
from tests.equivalence.optimizers import Recipe
from tools.coverage.features import FEATURES, Feature
from tools.coverage.rows import ROWS
from tools.coverage.table import Cell
from tools.coverage.verdict import WRONG, judged

STEPS = 4

# Ids of an embedding: they repeat in a batch, and some rows of the table are never looked up.
_TABLE_ROWS = 50
_IDS = np.random.default_rng(8).integers(0, 30, (len(INPUTS), 6)).astype(np.int32)


class CellNet(Net):
    """A net of two matrices, `first` and `second`, as a feature wants it.

    Attributes:
        before: The weights before training.
    """

    def __init__(self, strategy: tf.distribute.Strategy, recipe: Recipe, feature: Feature) -> None:
        self._recipe, self._feature = recipe, feature
        super().__init__(strategy, self._optimizer, self._model)
        self.before = [np.array(weight.numpy()) for weight in self.weights]

    @property
    def matrices(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight that is no bias, by the name that reports call it."""
        weights = self.model.trainable_variables
        return {v.path: tuple(v.shape) for v in weights if len(v.shape) == 2}

    def build_optimizer(self) -> None:
        """Makes the slots of Keras; those of TensorFlow 1 are made when a step is first traced."""
        if not self._recipe.fused:
            super().build_optimizer()

    def forward(self, rows: tf.Tensor) -> tf.Tensor:
        """The net's output in float32, whatever it computes in."""
        output: tf.Tensor = tf.cast(super().forward(rows), tf.float32)
        return output

    def loss(self, rows: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        """The loss to take the gradient of."""
        loss = super().loss(rows, wanted)
        return loss if self._recipe.fused else self.optimizer.scale_loss(loss)

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """One update of all weights."""
        if not self._recipe.fused:
            super().apply(gradients)
            return
        pairs = zip(gradients, self.weights, strict=True)
        self.optimizer.apply_gradients(pairs, global_step=self._steps)

    @property
    def slots(self) -> list[Any]:
        """The optimizer's variables."""
        if not self._recipe.fused:
            return [variable.value for variable in self.optimizer.variables]
        names = sorted(self.optimizer.get_slot_names())
        return [self.optimizer.get_slot(w, name) for name in names for w in self.weights]

    def train_all(self) -> None:
        """Trains for all steps."""
        rows = _IDS if self._feature.sparse else INPUTS
        if self._feature.loop == "inside":
            self.run(repeated(self.train, STEPS), 1, rows)
        elif self._feature.loop == "around":
            self._loop_around(self.spread(rows), self.spread(TARGETS))
        else:
            self.run(self.train, STEPS, rows)

    def _loop_around(self, rows: Any, wanted: Any) -> None:
        @tf.function
        def epoch(*given: Any) -> None:
            for _ in tf.range(STEPS):
                self.strategy.run(self.train, given)

        epoch(rows, wanted)

    def _optimizer(self) -> Any:
        if self._recipe.fused:
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False)
            return self._recipe.make(self._steps)
        made = self._recipe.make(**self._feature.options)
        if not self._feature.scaled:
            return made
        return keras.optimizers.LossScaleOptimizer(made, initial_scale=8.0, dynamic_growth_steps=2)

    def _model(self) -> keras.Model:
        rows: list[Any]
        if self._feature.sparse:
            table = keras.layers.Embedding(_TABLE_ROWS, 16, name="first")
            rows = [keras.layers.Input((_IDS.shape[1],), dtype="int32"), table]
            rows += [keras.layers.Flatten()]
        else:
            rows = [keras.layers.Input((INPUTS.shape[1],)), self._dense(64, "first", "tanh")]
        return keras.Sequential([*rows, self._dense(OUTPUTS, "second")])

    def _dense(self, units: int, name: str, activation: str | None = None) -> keras.layers.Layer:
        limit = keras.constraints.UnitNorm(axis=0) if self._feature.constrained else None
        return keras.layers.Dense(
            units, activation, name=name, dtype=self._feature.policy, kernel_constraint=limit
        )


def compared(
    strategy: tf.distribute.Strategy, row: str, feature: str, *, weights_in_shards: bool
) -> Cell:
    """Trains one cell both ways.

    Args:
        strategy: Of this process.
        row: The optimizer, of `ROWS`.
        feature: Of `FEATURES`.
        weights_in_shards: Whether the strategy's dialect stores weights in shards, as its slots.

    Returns:
        The cell. What the sharded run raises is "WRONG", as is a matrix that was not trained.
    """
    recipe, wanted = ROWS[row], FEATURES[feature]
    if recipe.fused and wanted.keras_only:
        return Cell("-")
    nets: list[CellNet] = []
    begun: list[str] = []

    def train() -> list[Any]:
        # Names are counted from the start, so that reasons name the same variables every time.
        keras.backend.clear_session()
        begun.append(row)
        nets.append(CellNet(strategy, recipe, wanted))
        nets[-1].train_all()
        return [*nets[-1].weights, *nets[-1].slots]

    try:
        found = both(train)
    except Exception as error:
        raised = type(error).__name__
        return Cell(f"n/a: {raised}" if len(begun) == 1 else f"{WRONG}: raises {raised}")
    net = nets[-1]
    trained = zip(net.before, found.unsharded, strict=False)
    if any((before == after).all() for before, after in trained):
        return Cell(f"{WRONG}: a weight is not trained")
    stored = found.variables if weights_in_shards else net.slots
    updated = {v.name for report in found.reports for v in report.variables}
    shapes = {shape for name, shape in net.matrices.items() if name in updated}
    whole = [
        v.name
        for v in stored
        # Each replica adds up gradients of its own in these.
        if "gradient_accumulator" not in v.name and tuple(v.shape) in shapes and not in_shards(v)
    ]
    pairs = zip(found.unsharded, found.sharded, strict=True)
    apart = max(_apart(one, other) for one, other in pairs)
    return judged([*net.matrices], whole, found.reports, apart)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    return 0.0 if one.tobytes() == other.tobytes() else relative_difference(one, other)

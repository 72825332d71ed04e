"""One cell of the coverage matrix: a small net, trained without and with the flag, and compared."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

from tests.equivalence.in_process import both, in_shards
from tests.equivalence.matrix import relative_difference
from tools.coverage.features import FEATURES
from tools.coverage.legacy_net import LegacyCellNet
from tools.coverage.net import CellNet
from tools.coverage.rows import ROWS
from tools.coverage.table import Cell
from tools.coverage.verdict import WRONG, judged


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
    net_of = LegacyCellNet if recipe.legacy else CellNet
    nets: list[CellNet] = []
    begun: list[str] = []

    def train() -> list[Any]:
        # Names are counted from the start, so that reasons name the same variables every time.
        keras.backend.clear_session()
        tf_keras.backend.clear_session()
        begun.append(row)
        nets.append(net_of(strategy, recipe, wanted))
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

"""Optimizers that need whole matrices, in custom loops.

Each scenario trains a net some of whose matrices are alike, and returns the variables to compare
and other numbers.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tests.equivalence.matrix_optimizers import Cooled, Shampoo, TensorShampoo, root_by_newton
from tests.equivalence.nested_scenarios import Left, Optimizer, Scenario
from tests.equivalence.net import OUTPUTS, WIDTH, Net

k = keras.optimizers

# One kernel of [24, 40] and five of [40, 40]: no number of workers divides those.
ALIKE = (40,) * 5


def net_of(
    strategy: tf.distribute.Strategy, optimizer: Optimizer, units: tuple[int, ...] = ALIKE
) -> Net:
    """A net of layers of so many units and one of the targets' size, as deep as that."""
    return Net(strategy, optimizer, functools.partial(_model, units))


def _model(units: tuple[int, ...]) -> keras.Model:
    layers = [keras.layers.Dense(n, activation="tanh") for n in (*units, OUTPUTS)]
    return keras.Sequential([keras.layers.Input((WIDTH,)), *layers])


def _trained(optimizer: Optimizer, units: tuple[int, ...] = ALIKE) -> Scenario:
    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = net_of(strategy, optimizer, units)
        return Left(net.state, net.run(net.train, 3))

    return scenario


def _restored(optimizer: Optimizer) -> Scenario:
    """A checkpoint is written, and read a step later and in a new net that goes on from there."""

    def scenario(strategy: tf.distribute.Strategy) -> Left:
        net = net_of(strategy, optimizer)
        net.run(net.train, 2)
        with tempfile.TemporaryDirectory() as folder:
            kept = tf.train.Checkpoint(model=net.model, optimizer=net.optimizer)
            path = kept.save(str(pathlib.Path(folder) / "kept"))
            net.run(net.train, 1)
            seen = [np.array(v) for v in net.state]
            kept.restore(path).assert_consumed()
            net.run(net.train, 2)
            other = net_of(strategy, optimizer)
            other.run(other.train, 1)
            again = tf.train.Checkpoint(model=other.model, optimizer=other.optimizer)
            again.restore(path).assert_consumed()
            other.run(other.train, 2)
        return Left([*net.state, *other.state], seen)

    return scenario


SCENARIOS: dict[str, Scenario] = {
    "muon": _trained(lambda: k.Muon(0.01)),
    "muon_clipped_and_averaged": _trained(lambda: k.Muon(0.01, clipnorm=0.5, use_ema=True)),
    "muon_restored": _restored(lambda: k.Muon(0.01)),
    "values_of_their_own": _trained(lambda: Cooled(0.01)),
    "shampoo": _trained(lambda: Shampoo(0.01, root_by_newton)),
    "shampoo_of_eigenvalues": _restored(lambda: Shampoo(0.01)),
    "shampoo_of_any_order": _trained(lambda: TensorShampoo(0.01), (40, 48, 32)),
}

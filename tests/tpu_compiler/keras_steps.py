"""The train step of a small Keras model, traced as `TPUStrategy` traces it, and its variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import state, turn_off, turn_on
from tests.equivalence.matrix_optimizers import Shampoo, root_by_newton
from tf_wu_shard import models
from tf_wu_shard.grounds.tpu.collectives import TpuCluster
from tf_wu_shard.grounds.tpu.torus import torus_of
from tf_wu_shard.layout import TileLayout
from tf_wu_shard.report.report import Report
from tf_wu_shard.topology import Topology
from tf_wu_shard.tpu_compiler import step
from tf_wu_shard.tpu_compiler.body import Argument, ReplicaBody, replica_body
from tf_wu_shard.weight_update.rewrite.names import scope_of

# Examples a replica.
BATCH = 2

SIZES: dict[str, dict[str, int]] = {"mlp": {}, "transformer_lm": {"depth": 1}}

# Those of a model's sizes that its data have too.
SHAPING = {"mlp": {"width"}, "transformer_lm": {"vocabulary", "length"}}


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A step that was traced for a slice.

    Attributes:
        model: Its model; its variables have no value.
        body: What each replica runs.
        report: What the pass says of it, None where the flag was off.
    """

    model: keras.Model
    body: ReplicaBody
    report: Report | None

    def argument(self, variable: keras.Variable) -> Argument:
        """The argument that a variable, or each replica's shard of it, enters by."""
        handle = variable.value._packed_variable.packed_handle
        shards = scope_of(variable.value.name.partition(":")[0], "shard_0")
        (found,) = (a for a in self.body.arguments if a.handle is handle or a.name == shards)
        return found


def adam() -> keras.optimizers.Optimizer:
    """Adam at rates at which one step moves the slots far.

    Without a bound of the division its first step is the gradient's sign, and rounding noise of a
    gradient near zero becomes a whole step.
    """
    return keras.optimizers.Adam(0.01, beta_1=0.5, beta_2=0.5, epsilon=0.01)


def shampoo() -> keras.optimizers.Optimizer:
    """Shampoo of as few rounds of matrix products as there are."""
    return Shampoo(0.1, root_by_newton)


def muon() -> keras.optimizers.Optimizer:
    """Muon at a rate at which one step moves the weights far."""
    return keras.optimizers.Muon(0.1)


def compiled(
    name: str,
    strategy: tf.distribute.Strategy,
    optimizer: Callable[[], keras.optimizers.Optimizer] = adam,
    **sizes: int,
) -> keras.Model:
    """One of the project's models under a strategy, its optimizer built."""
    with strategy.scope():
        model = models.build(name, **(SIZES[name] | sizes))
        model.compile(optimizer(), models.loss(name))
        model.optimizer.build(model.trainable_variables)
    return model


def traced(
    name: str,
    place: Topology,
    options: dict[str, Any] | None,
    optimizer: Callable[[], keras.optimizers.Optimizer] = adam,
    **sizes: int,
) -> TracedStep:
    """Traces a model's step.

    Args:
        name: Of the model.
        place: The slice.
        options: Of the sharding; None to leave the flag off.
        optimizer: Makes the optimizer.
        **sizes: Of the model.
    """
    strategy = step.strategy_for(place)
    model = compiled(name, strategy, optimizer, **sizes)
    shaping = {size: value for size, value in sizes.items() if size in SHAPING[name]}
    tf_wu_shard.clear_reports()
    if options is not None:
        turn_on(**options)
    try:
        body = replica_body(step.trace(model, models.data(name, BATCH, **shaping), strategy))
    finally:
        turn_off()
    reports = tf_wu_shard.reports()
    return TracedStep(model, body, reports[-1] if reports else None)


def layout_of(variable: keras.Variable, place: Topology) -> TileLayout:
    """How the dialect of a slice cuts a variable."""
    layout_of = TpuCluster("cluster", torus_of(place.coordinates)).preferences.layout
    assert layout_of is not None
    layout = layout_of(tuple(variable.shape), 4)
    assert isinstance(layout, TileLayout)
    return layout


def given_values(model: keras.Model) -> list[np.ndarray]:
    """A value for every weight and variable of the optimizer, as training would leave them."""
    random = np.random.default_rng(3)
    values = []
    for variable in state(model):
        value = np.asarray(variable.numpy())
        if value.size > 1:
            # Moments of squares are not negative.
            value = value + 1e-4 * np.abs(random.standard_normal(value.shape))
        values.append(value.astype(variable.dtype))
    return values

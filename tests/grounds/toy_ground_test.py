"""A ground that only this folder knows trains as the package's own do, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_wu_shard
from tests.equivalence.in_process import (
    StrategyOf,
    compiled,
    dense_model,
    examples,
    in_shards,
    state,
    turn_off,
    turn_on,
)
from tests.grounds.toy_ground import NAME, ThroughTheLast
from tf_wu_shard.graph.builder import Emitter
from tf_wu_shard.graph.op import Value
from tf_wu_shard.layout import Layout

k = keras.optimizers

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "Adam": lambda: k.Adam(0.01),
    "LAMB": lambda: k.Lamb(0.01),
    "Adam, clipped, averaged": lambda: k.Adam(0.01, global_clipnorm=0.5, use_ema=True),
    "Muon": lambda: k.Muon(0.01),
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    tf_wu_shard.register_dialect(NAME, ThroughTheLast)
    yield
    turn_off()


def embedding_model() -> keras.Model:
    """A table of which every step touches some rows, and a dense layer."""
    return keras.Sequential(
        [
            keras.layers.Input((4,), dtype="int32"),
            keras.layers.Embedding(50, 8),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


def trained(
    strategy: tf.distribute.Strategy,
    dialect: str,
    build: Callable[[], keras.Model],
    optimizer: Callable[[], keras.optimizers.Optimizer],
) -> tuple[list[np.ndarray], list[bool]]:
    """The weights and slots after three steps, and which of them are in shards."""
    turn_on(dialect=dialect, on_refusal="raise")
    keras.utils.set_random_seed(7)
    model = compiled(strategy, build, optimizer)
    inputs, targets = examples(24)
    if build is embedding_model:
        inputs = np.random.default_rng(3).integers(0, 50, (24, 4), np.int32)
    model.fit(inputs, targets, batch_size=8, shuffle=False, verbose=0)
    variables = state(model)
    slots = [v for v in model.optimizer.variables if len(v.shape)]
    return [variable.numpy() for variable in variables], [in_shards(slot) for slot in slots]


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_it_trains_as_the_reference_does(strategy_of: StrategyOf, case: str) -> None:
    own = trained(strategy_of(2), NAME, dense_model, OPTIMIZERS[case])
    reference = trained(strategy_of(2), "reference", dense_model, OPTIMIZERS[case])
    check_same(own, reference)


def test_a_table_of_which_steps_touch_rows_trains_as_the_reference_does(
    strategy_of: StrategyOf,
) -> None:
    own = trained(strategy_of(2), NAME, embedding_model, OPTIMIZERS["Adam"])
    reference = trained(strategy_of(2), "reference", embedding_model, OPTIMIZERS["Adam"])
    check_same(own, reference)


class Halved(ThroughTheLast):
    """Sums wrong: what must show when it is chosen, and nothing else is."""

    def reduce_scatter(
        self, at: Emitter, operands: Sequence[Sequence[Value]], layouts: Sequence[Layout]
    ) -> list[list[Value]]:
        """Half of each sum."""
        found = super().reduce_scatter(at, operands, layouts)
        return [
            [at.op("Mul", [v, at.constant(0.5, at.dtype(v))], "half") for v in own] for own in found
        ]


def test_the_chosen_ground_is_the_one_that_sums(strategy_of: StrategyOf) -> None:
    tf_wu_shard.register_dialect("halved", Halved)
    # Of plain SGD, as Adam divides by the gradient's size.
    own, _ = trained(strategy_of(2), "halved", dense_model, lambda: k.SGD(0.01, momentum=0.9))
    right, _ = trained(strategy_of(2), NAME, dense_model, lambda: k.SGD(0.01, momentum=0.9))
    assert any(one.tobytes() != other.tobytes() for one, other in zip(own, right, strict=True))


def check_same(
    own: tuple[list[np.ndarray], list[bool]], reference: tuple[list[np.ndarray], list[bool]]
) -> None:
    assert own[1] == reference[1] and any(own[1])
    for one, other in zip(own[0], reference[0], strict=True):
        assert one.tobytes() == other.tobytes()

"""Weights of one row: Keras adds their tensors by BiasAdd, which a shard has no kernel for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import pytest

from tests.equivalence.in_process import StrategyOf, both, compiled, state
from tests.selection import cases

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, centered=True, momentum=0.9),
    "adadelta": lambda: keras.optimizers.Adadelta(0.5),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
    "lion": lambda: keras.optimizers.Lion(0.01),
}


def _one_row() -> keras.Model:
    inputs = keras.layers.Input((5,))
    one = keras.layers.Dense(1)(inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dense(37)(one)))


@pytest.mark.parametrize("optimizer", cases(OPTIMIZERS, {"nadam", "lion"}))
def test_a_one_row_kernel_is_sharded_and_bit_identical(
    strategy_of: StrategyOf, optimizer: str
) -> None:
    def train() -> Sequence[Any]:
        model = compiled(strategy_of(2), _one_row, OPTIMIZERS[optimizer])
        inputs, targets = keras.random.normal((16, 5)), keras.random.normal((16, 3))
        model.fit(inputs, targets, batch_size=4, epochs=2, shuffle=False, verbose=0)
        return state(model)

    result = both(train)
    assert result.apart == []
    (report,) = result.reports
    assert report.left_alone == () and (1, 37) in [v.shape for v in report.variables]

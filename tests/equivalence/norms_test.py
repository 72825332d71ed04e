"""Updates that look at norms, and at means of rows and columns, train the same in shards.

The norms are sums over all shards, so they are summed in another order than unsharded ones, and
rounded otherwise; `reordered` measures what that may change.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import pytest
import tensorflow as tf

from tests.equivalence.in_process import StrategyOf
from tests.equivalence.norm_optimizers import (
    AdamWeightDecay,
    ClippedAfter,
    ClippedLamb,
    Lamb,
    Largest,
    Lars,
    LoggedNorms,
    RowNorms,
)
from tests.equivalence.reordered import Training, check_against_reordered
from tests.selection import cases

k = keras.optimizers

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "Keras Lamb": lambda: k.Lamb(0.01, weight_decay=0.01),
    "Keras Adafactor": lambda: k.Adafactor(0.05),
    "LAMB": lambda: Lamb(0.01),
    "LARS": lambda: Lars(0.5),
    "global norm clipped": lambda: ClippedAfter("global", 0.01),
    "each norm clipped": lambda: ClippedAfter("each", 0.01),
    "LAMB of clipped": lambda: ClippedLamb(0.01),
    "norms of rows": lambda: RowNorms(0.05),
    "largest elements": lambda: Largest(0.05),
    "norms logged": lambda: LoggedNorms(0.01),
    "AdamWeightDecay": lambda: AdamWeightDecay(0.01),
}

# Nothing but gradients is added up in these, and at 2 replicas there is one order for that.
EXACT = {"largest elements", "norms logged", "AdamWeightDecay"}

CONSTRAINTS: dict[str, Callable[[], keras.constraints.Constraint]] = {
    "unit norm": lambda: keras.constraints.UnitNorm(axis=0),
    "largest norm": lambda: keras.constraints.MaxNorm(0.8, axis=1),
    "norms between": lambda: keras.constraints.MinMaxNorm(0.5, 0.9, rate=0.7, axis=0),
}

# What every run of the tests takes; one way through each rule and each dialect.
QUICK = {
    "process": ("LAMB of clipped", "unit norm"),
    "tpu": ("Keras Adafactor",),
}


CASES = (*OPTIMIZERS, *CONSTRAINTS)


def check(
    strategy: tf.distribute.Strategy, case: str, *, vectors: bool, exact: bool = False
) -> None:
    """Trains unsharded, reordered and sharded, compares, and looks at what was sharded."""
    training = Training(
        OPTIMIZERS.get(case, lambda: k.Adam(0.01)), CONSTRAINTS.get(case, lambda: None)
    )
    check_against_reordered(strategy, training, vectors=vectors, exact=exact)


@pytest.mark.parametrize("case", cases(CASES, QUICK["process"]))
def test_in_two_replicas_of_a_process(strategy_of: StrategyOf, case: str) -> None:
    check(strategy_of(2), case, vectors=True, exact=case in EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_in_four_replicas_of_a_process(summing_strategy_of: StrategyOf, case: str) -> None:
    check(summing_strategy_of(4), case, vectors=True)


@pytest.mark.parametrize("case", cases(CASES, QUICK["tpu"]))
def test_in_four_replicas_of_a_tpu(emulated: StrategyOf, case: str) -> None:
    check(emulated(4), case, vectors=False)

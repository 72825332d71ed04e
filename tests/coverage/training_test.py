"""What goes wrong in a training reaches its cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf

from tests.equivalence.in_process import Both, StrategyOf, both
from tools.coverage import net, training
from tools.coverage.table import Cell

Train = Callable[[], Sequence[Any]]


def _cell(strategy: tf.distribute.Strategy, feature: str = "plain") -> Cell:
    return training.compared(strategy, "momentum", feature, weights_in_shards=False)


def test_a_slot_that_differs_is_wrong(
    strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(train: Train) -> Both:
        found = both(train)
        return dataclasses.replace(found, sharded=[*found.sharded[:-1], found.sharded[-1] * 1.001])

    monkeypatch.setattr(training, "both", spoiled)
    assert _cell(strategy_of(2)) == Cell("WRONG: 1e-03 apart")


def test_a_slot_that_is_not_stored_in_shards_is_wrong(
    strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "in_shards", lambda variable: False)
    assert _cell(strategy_of(2)) == Cell("WRONG: exact")


def test_an_error_of_the_sharded_training_alone_is_wrong(
    strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(train: Train) -> Both:
        train()
        train()
        raise KeyError("sharded")

    monkeypatch.setattr(training, "both", failing)
    assert _cell(strategy_of(2)) == Cell("WRONG: raises KeyError")


def test_an_error_of_the_unsharded_training_means_not_applicable(strategy_of: StrategyOf) -> None:
    assert _cell(strategy_of(2), "accumulation") == Cell("n/a: RuntimeError")


def test_weights_that_do_not_move_are_wrong(
    strategy_of: StrategyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(net.CellNet, "train_all", lambda net: None)
    assert _cell(strategy_of(2)) == Cell("WRONG: a weight is not trained")

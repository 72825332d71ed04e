"""Embeddings whose rows are updated in shards train bit for bit as unsharded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from tests.equivalence.embedding import KERAS, V1, train_embedding
from tests.equivalence.in_process import StrategyOf, both, in_shards
from tests.selection import cases


def _check(train: Callable[[], list[Any]]) -> None:
    runs = both(train)
    assert runs.apart == []
    assert any(np.any(value) for value in runs.sharded[3:])
    tables = [v for v in runs.variables[3:] if v.shape == runs.variables[0].shape]
    assert tables
    assert all(in_shards(variable) for variable in tables)
    assert all("failed" not in str(report) for report in runs.reports)


@pytest.mark.parametrize("optimizer", cases(sorted(KERAS), {"clipnorm", "ftrl"}))
def test_an_embeddings_slots_live_in_shards_of_rows(
    strategy_of: StrategyOf, optimizer: str
) -> None:
    strategy = strategy_of(2)
    _check(lambda: train_embedding(strategy, KERAS[optimizer]))


@pytest.mark.parametrize("optimizer", cases(sorted(V1), {"momentum"}))
def test_lazy_updates_exchange_rows_and_no_table(strategy_of: StrategyOf, optimizer: str) -> None:
    strategy = strategy_of(2)
    _check(lambda: train_embedding(strategy, V1[optimizer]))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("rows", "width", "dtype"),
    cases([(33, 5, "int64"), (7, 16, "int32"), (20, 1, "int32")], {(33, 5, "int64")}),
)
def test_rows_that_do_not_divide_evenly(
    strategy_of: StrategyOf, rows: int, width: int, dtype: str, lazy: bool
) -> None:
    strategy = strategy_of(2)
    optimizer = V1["momentum"] if lazy else KERAS["adamw"]
    _check(lambda: train_embedding(strategy, optimizer, rows=rows, width=width, dtype=dtype))


@pytest.mark.parametrize("lazy", [False, True])
def test_an_embedding_that_two_inputs_share(strategy_of: StrategyOf, lazy: bool) -> None:
    strategy = strategy_of(2)
    optimizer = V1["adam"] if lazy else KERAS["nadam"]
    _check(lambda: train_embedding(strategy, optimizer, shared=True))


@pytest.mark.parametrize("lazy", [False, True])
def test_gradients_summed_on_one_device(summing_strategy_of: StrategyOf, lazy: bool) -> None:
    # Four replicas: entries are not added up before each row's sum, in one order in both runs.
    strategy = summing_strategy_of(4)
    optimizer = V1["ftrl"] if lazy else KERAS["ftrl"]
    batches = ((2, 1, 3, 2), (1, 1, 1, 1))
    _check(lambda: train_embedding(strategy, optimizer, batches=batches))


def test_an_update_without_slots_is_left_alone_and_says_why(strategy_of: StrategyOf) -> None:
    strategy = strategy_of(2)
    runs = both(lambda: train_embedding(strategy, lambda: keras.optimizers.SGD(0.1)))
    assert runs.apart == []
    assert "has no slot: all is done" in str(runs.reports[-1])

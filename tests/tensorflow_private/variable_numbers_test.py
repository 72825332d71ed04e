"""Variables of several workers are numbered as they are made; others have no number."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy

from tf_wu_shard.tensorflow_private import handle_references, variable_numbers

Strategies = Callable[[int], tf.distribute.MirroredStrategy]


class Made:
    """What a distributed variable is known by."""

    def __init__(self, count: int = 0, workers: bool = True) -> None:
        several = collective_all_reduce_strategy.CollectiveAllReduceExtended
        extended: Any = object.__new__(several) if workers else None
        self._distribute_strategy: Any = types.SimpleNamespace(extended=extended)
        self._primary = types.SimpleNamespace(_unique_id=f"kernel_1_{count}")


def test_a_number_is_given_once_and_follows_the_last() -> None:
    one, other = Made(), Made()
    for variable in (one, other, one):
        variable_numbers.note(variable)
    first, second = map(variable_numbers.number_of, (one, other))
    assert first is not None and second == first + 1


def test_variables_of_one_process_have_none() -> None:
    alone, without = Made(workers=False), Made()
    without._distribute_strategy = None
    for variable in (alone, without):
        variable_numbers.note(variable)
        assert variable_numbers.number_of(variable) is None


def test_those_made_before_are_numbered_in_the_order_in_which_they_were_made() -> None:
    late, early = Made(count=12), Made(count=9)
    variable_numbers.note_all([late, early])
    found = [variable_numbers.number_of(variable) for variable in (early, late)]
    assert found[0] is not None and found[1] == found[0] + 1


def test_one_of_a_graph_made_before_has_no_count_and_no_number() -> None:
    of_a_graph = Made(workers=False)
    of_a_graph._primary = types.SimpleNamespace(_unique_id="kernel")
    variable_numbers.note_all([of_a_graph, Made(count=3)])
    assert variable_numbers.number_of(of_a_graph) is None


def test_a_variable_is_numbered_when_it_is_made(
    strategy_of: Strategies, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle_references.install()
    strategy = strategy_of(2)
    monkeypatch.setattr(
        collective_all_reduce_strategy, "CollectiveAllReduceExtended", type(strategy.extended)
    )
    with strategy.scope():
        one, other = (tf.Variable(0.0, name="kernel") for _ in range(2))
    first, second = map(variable_numbers.number_of, (one, other))
    assert first is not None and second == first + 1
    variable_numbers.note_all([other, one])
    assert variable_numbers.number_of(other) == second

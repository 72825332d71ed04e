"""A batch that is taken outside of a function is told of, one that a function takes is not."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import input_lib

from tf_wu_shard.tensorflow_private.eager_batches import before_eager_batches
from tf_wu_shard.tensorflow_private.wrapping import unwrap

NAME = "_calculate_replicas_with_values"


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was told and what was computed, in this order."""
    found: list[str] = []

    def calculate(*args: Any, **kwargs: Any) -> Any:
        found.append("computed")
        return args, kwargs

    monkeypatch.setattr(input_lib, NAME, calculate)
    before_eager_batches(lambda: found.append("told"))
    return found


def take(*args: Any, **kwargs: Any) -> Any:
    return getattr(input_lib, NAME)(*args, **kwargs)


def test_it_is_told_before_workers_are_asked_each_time(done: list[str]) -> None:
    assert take("strategy", options="some") == (("strategy",), {"options": "some"})
    take()
    assert done == ["told", "computed", "told", "computed"]


def test_in_a_function_it_is_an_op_as_others_are(done: list[str]) -> None:
    tf.function(lambda: take() and None, autograph=False).get_concrete_function()
    assert done == ["computed"]


def test_a_second_one_is_not_told(done: list[str]) -> None:
    before_eager_batches(lambda: done.append("told again"))
    take()
    assert done == ["told", "computed"]


def test_an_iterator_whose_dataset_may_end_asks_that_way(
    monkeypatch: pytest.MonkeyPatch, strategy_of: Any
) -> None:
    monkeypatch.setattr(input_lib, NAME, getattr(input_lib, NAME))
    asked: list[str] = []
    unwrap(input_lib, NAME)
    before_eager_batches(lambda: asked.append("told"))
    numbers = tf.data.Dataset.range(3).batch(2)
    batches = iter(strategy_of(2).experimental_distribute_dataset(numbers))
    next(batches)
    assert asked == ["told"]

"""Code put around a function of TensorFlow runs once around each call, until it is taken away."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest

from tf_wu_shard.tensorflow_private.wrapping import unwrap, wrap_once


class Counter:
    """Has a method."""

    def add(self, number: int, *, twice: bool = False) -> int:
        """Adds."""
        return number * (1 + twice)


def one_more(original: Any, *args: Any, **kwargs: Any) -> Any:
    """What is put around it."""
    return original(*args, **kwargs) + 1


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> type[Counter]:
    """The class, as it was again after the test."""
    monkeypatch.setattr(Counter, "add", Counter.add)
    return Counter


def test_a_method_is_called_with_itself_and_all_that_the_caller_hands_over(
    owner: type[Counter],
) -> None:
    assert wrap_once(owner, "add", one_more)
    assert owner().add(3) == 4
    assert owner().add(3, twice=True) == 7
    assert owner.add.__name__ == "add" and owner.add.__doc__ == "Adds."


def test_a_second_time_nothing_is_done(owner: type[Counter]) -> None:
    assert wrap_once(owner, "add", one_more)
    assert not wrap_once(owner, "add", one_more)
    assert owner().add(3) == 4


def test_what_others_put_around_ours_does_not_hide_it(owner: type[Counter]) -> None:
    original = owner.add
    wrap_once(owner, "add", one_more)
    ours: Any = owner.add

    @functools.wraps(ours)
    def theirs(self: Counter, number: int) -> int:
        return int(ours(self, number)) * 10

    owner.add = theirs  # type: ignore[method-assign, assignment]
    assert not wrap_once(owner, "add", one_more)
    assert owner().add(3) == 40
    unwrap(owner, "add")
    assert owner.add is original


def test_a_function_of_a_module_is_put_back_as_it_was() -> None:
    module = types.SimpleNamespace(half=lambda number: number / 2)
    original = module.half
    assert wrap_once(module, "half", one_more)
    assert module.half(4) == 3
    unwrap(module, "half")
    assert module.half is original and wrap_once(module, "half", one_more)

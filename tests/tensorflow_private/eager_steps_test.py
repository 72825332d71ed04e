"""An eager reduction over replicas is noticed, one that is traced is not."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import eager_steps

OWNER = tf.distribute.StrategyExtended


@pytest.fixture
def noticed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(OWNER, "batch_reduce_to", lambda self, *args: ["sum", *args])
    eager_steps.install(lambda: found.append("noticed"))
    return found


def test_an_eager_reduction_is_noticed_and_done(noticed: list[str]) -> None:
    this: Any = object()
    assert OWNER.batch_reduce_to(this, 1, 2) == ["sum", 1, 2] and noticed == ["noticed"]


def test_a_traced_one_is_not(noticed: list[str]) -> None:
    this: Any = object()
    tf.function(lambda: OWNER.batch_reduce_to(this), autograph=False).get_concrete_function()
    assert noticed == []


def test_a_second_installation_changes_nothing(noticed: list[str]) -> None:
    eager_steps.install(lambda: noticed.append("again"))
    OWNER.batch_reduce_to(object())
    assert noticed == ["noticed"]

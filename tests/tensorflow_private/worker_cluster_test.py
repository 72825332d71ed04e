"""What the coordination service answers is a value; that it is gone is TensorFlow's error."""

from __future__ import annotations

import types
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import worker_cluster


def service(monkeypatch: pytest.MonkeyPatch, **calls: Any) -> None:
    context = types.SimpleNamespace(**calls)
    monkeypatch.setattr(worker_cluster, "context", types.SimpleNamespace(context=lambda: context))


def raising(kind: Any) -> Any:
    def call(*arguments: Any) -> None:
        raise kind(None, None, "said")

    return call


def test_a_key_is_inserted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, str] = {}
    service(monkeypatch, set_config_key_value=table.__setitem__)
    assert worker_cluster.insert("key", "text") and table == {"key": "text"}
    service(monkeypatch, set_config_key_value=raising(tf.errors.AlreadyExistsError))
    assert not worker_cluster.insert("key", "other")


def test_a_text_that_does_not_come_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    service(monkeypatch, get_config_key_value=lambda key, time: f"{key} {time}")
    assert worker_cluster.get("key", 5) == "key 5"
    service(monkeypatch, get_config_key_value=raising(tf.errors.DeadlineExceededError))
    assert worker_cluster.get("key", 5) is None


def test_a_service_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = raising(tf.errors.UnavailableError)
    service(
        monkeypatch,
        set_config_key_value=gone,
        get_config_key_value=gone,
        delete_config_key_value=gone,
    )
    for call in (
        lambda: worker_cluster.insert("key", "text"),
        lambda: worker_cluster.get("key", 5),
        lambda: worker_cluster.remove("key"),
    ):
        with pytest.raises(tf.errors.UnavailableError):
            call()

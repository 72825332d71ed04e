"""The cluster's table behaves as the local one does; an error of TensorFlow's is the table's."""

from __future__ import annotations

import math
import threading
import time
import types
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.tensorflow_private import worker_cluster
from tf_wu_shard.workers.cluster_store import ClusterStore
from tf_wu_shard.workers.loss import Loss
from tf_wu_shard.workers.store import StoreError


class Service:
    """What TensorFlow's context does with keys in a cluster of one, and the waits it was asked."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.waits: list[int] = []

    def set_config_key_value(self, key: str, value: str) -> None:
        if key in self.texts:
            raise tf.errors.AlreadyExistsError(None, None, f"key {key} already exists.")
        self.texts[key] = value

    def get_config_key_value(self, key: str, timeout_in_ms: int) -> str:
        self.waits.append(timeout_in_ms)
        if key not in self.texts:
            raise tf.errors.DeadlineExceededError(None, None, "GetKeyValue() timed out")
        return self.texts[key]

    def delete_config_key_value(self, key: str) -> None:
        for taken in [k for k in self.texts if f"{k}/".startswith(f"{key}/")]:
            del self.texts[taken]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    fake = Service()
    monkeypatch.setattr(worker_cluster, "context", types.SimpleNamespace(context=lambda: fake))
    return fake


def test_a_key_is_inserted_once_and_read_and_removed_under_the_packages_own(
    service: Service,
) -> None:
    store = ClusterStore(Loss())
    assert store.insert("a/b", "first")
    assert not store.insert("a/b", "second")
    assert store.get("a/b", 0) == "first"
    assert list(service.texts) == ["tf_wu_shard/a/b"]
    store.remove("a")
    assert store.get("a/b", 0) is None


def test_looking_once_leaves_the_service_time_to_answer(service: Service) -> None:
    # To the service 0 milliseconds are without end, which is what infinity stands for here.
    for seconds in (0, 0.0001, 2.5, math.inf):
        ClusterStore(Loss()).get("a", seconds)
    assert service.waits == [100, 100, 2500, 0]


@pytest.mark.parametrize(
    "error",
    [tf.errors.UnavailableError, tf.errors.CancelledError, tf.errors.FailedPreconditionError],
)
def test_a_service_that_is_gone_is_an_error_of_the_table(
    monkeypatch: pytest.MonkeyPatch, error: type[tf.errors.OpError]
) -> None:
    def gone() -> Any:
        raise error(None, None, "Socket closed\nAdditional GRPC error information")

    monkeypatch.setattr(worker_cluster, "context", types.SimpleNamespace(context=gone))
    store = ClusterStore(Loss())
    for call, verb in (
        (lambda: store.insert("a", ""), "insert"),
        (lambda: store.get("a", 0), "read"),
        (lambda: store.remove("a"), "remove"),
    ):
        with pytest.raises(StoreError) as raised:
            call()
        words = str(raised.value)
        assert f"did not {verb} 'tf_wu_shard/a' ({error.__name__}: Socket closed)" in words


@pytest.mark.parametrize("verb", ["insert", "get", "remove"])
def test_a_service_that_never_answers_is_waited_for_until_the_cluster_is_lost(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    never = threading.Event()
    monkeypatch.setattr(
        worker_cluster, "context", types.SimpleNamespace(context=lambda: never.wait(30))
    )
    loss = Loss()
    store = ClusterStore(loss)
    calls = {
        "insert": lambda: store.insert("a", ""),
        "get": lambda: store.get("a", math.inf),
        "remove": lambda: store.remove("a"),
    }
    threading.Timer(0.1, loss.declare, ["worker 0 is stopped"]).start()
    started = time.monotonic()
    with pytest.raises(StoreError, match="the cluster is lost: worker 0 is stopped"):
        calls[verb]()
    assert time.monotonic() - started < 5
    never.set()

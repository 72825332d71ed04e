"""A worker whose program ends says so, hands its shards out for a while, and watches no longer."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf  # noqa: F401  sets the package up

from tests.workers.threads import FailingStore
from tf_wu_shard.workers import presence
from tf_wu_shard.workers.farewells import Farewells
from tf_wu_shard.workers.loss import Loss
from tf_wu_shard.workers.presence import Presence


class Collectives:
    """Those of worker 1 of three, which has begun twelve."""

    def __init__(self, strategy: Any) -> None:
        self.number = 1
        self.others = (0, 2)
        self.addresses = {0: ("host", 81)}

    def begun(self) -> int:
        return 12


class Noted:
    """Stands for the watch and for the exchange of shards, and notes how they end."""

    def __init__(self, done: list[str], *arguments: Any) -> None:
        self._done = done
        self.arguments = arguments

    def leave(self, seconds: float) -> None:
        self._done.append(f"shards for {seconds:g}")

    def end(self) -> None:
        self._done.append("watch ends")


class Worker:
    """Worker 1, and what it does when its program ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.store = FailingStore()
        self.loss = Loss()
        last: list[Callable[[], None]] = []
        monkeypatch.setattr(atexit, "register", last.append)
        monkeypatch.setattr(presence, "TensorFlowCollectives", Collectives)
        monkeypatch.setattr(presence, "Watch", lambda *given: Noted(self.done, *given))
        monkeypatch.delattr(sys, "last_value", raising=False)
        strategy: Any = object()
        self.presence: Any = Presence(strategy, self.store, self.loss)
        (self.end,) = last

    @property
    def begun(self) -> int | None:
        """What another worker hears that it had begun."""
        return Farewells(self.store, 0).of(1)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_the_watch_is_over_the_others_whose_loss_it_declares(worker: Worker) -> None:
    others, addresses, collectives, _, loss = worker.presence.watch.arguments
    assert (others, addresses) == ((0, 2), {0: ("host", 81)})
    assert isinstance(collectives, Collectives) and loss is worker.loss
    assert worker.begun is None


def test_a_program_that_ends_says_what_it_has_begun_and_waits_for_readers(worker: Worker) -> None:
    worker.presence.exchange = Noted(worker.done)
    worker.end()
    assert worker.begun == 12
    assert worker.done == ["shards for 60", "watch ends"]


def test_one_that_handed_nothing_out_waits_for_nobody(worker: Worker) -> None:
    worker.end()
    assert worker.begun == 12 and worker.done == ["watch ends"]


def test_one_that_failed_leaves_at_once_without_a_word(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.presence.exchange = Noted(worker.done)
    monkeypatch.setattr(sys, "last_value", ValueError("in the step"), raising=False)
    worker.end()
    assert worker.begun is None and worker.done == ["shards for 0", "watch ends"]


def test_a_table_that_has_gone_keeps_no_program_from_ending(worker: Worker) -> None:
    worker.presence.exchange = Noted(worker.done)
    worker.store.fail()
    worker.end()
    assert worker.done == ["shards for 60", "watch ends"]


def test_a_fork_of_a_worker_ends_without_a_word(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    worker.end()
    assert worker.begun is None and worker.done == []

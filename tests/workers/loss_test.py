"""A call that never returns is waited for until the cluster is lost, and no longer."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from tests.workers.threads import together
from tf_wu_shard.workers.loss import Loss
from tf_wu_shard.workers.store import StoreError


def test_a_call_that_ends_gives_what_it_returns_and_raises_what_it_raises() -> None:
    loss = Loss()
    assert loss.unless_lost(lambda: 7) == 7
    assert loss.unless_lost(lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        loss.unless_lost(lambda: 7 // 0)


def test_the_loss_ends_every_wait_and_says_why() -> None:
    loss, never = Loss(), threading.Event()

    def wait() -> str:
        with pytest.raises(StoreError, match="the cluster is lost: worker 1 has ended") as raised:
            loss.unless_lost(never.wait)
        return str(raised.value)

    threading.Timer(0.1, partial(loss.declare, "worker 1 has ended")).start()
    started = time.monotonic()
    assert len(set(together([wait] * 3))) == 1
    assert time.monotonic() - started < 2
    never.set()


def test_nothing_is_called_once_the_cluster_is_lost_and_the_first_reason_stays() -> None:
    loss = Loss()
    loss.declare("the first")
    loss.declare("the second")
    called: list[int] = []
    with pytest.raises(StoreError, match="the first"):
        loss.unless_lost(lambda: called.append(1))
    assert not called
    assert loss.reason == "the first"


def test_calls_do_not_wait_for_each_other() -> None:
    loss, never = Loss(), threading.Event()
    waiting = threading.Thread(target=loss.unless_lost, args=(never.wait,))
    waiting.start()
    assert loss.unless_lost(lambda: 7) == 7
    assert waiting.is_alive()
    never.set()
    waiting.join(3)
    assert not waiting.is_alive()

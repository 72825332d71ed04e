"""An end of a process is told at once; a stop, a slow answer and a hang-up are none."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.workers.listener import free_port, listening
from tf_wu_shard.workers.connections import HeldConnections

# How long it may take on a busy machine until an end is told; on an idle one it takes 0.02 s.
_AT_ONCE = 3.0


class Told:
    """Who was told to be gone, of some workers' connections."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self.held = HeldConnections(addresses)
        self.workers: list[int] = []

    def wait(self, seconds: float, count: int = 1) -> list[int]:
        """Waits until so many were told, or the time is over."""
        deadline = time.monotonic() + seconds
        while len(self.workers) < count and time.monotonic() < deadline:
            self.workers += self.held.refused(0.05)
        return self.workers


def test_a_process_that_is_killed_is_told_at_once_and_once() -> None:
    with listening() as first, listening() as second:
        told = Told({1: first.address, 2: second.address})
        assert told.wait(0.3) == []
        second.kill()
        assert told.wait(_AT_ONCE) == [2]
        assert told.wait(0.3, count=2) == [2]
        first.kill()
        assert told.wait(_AT_ONCE, count=2) == [2, 1]
        told.held.close()


def test_a_process_that_was_gone_before_is_told() -> None:
    told = Told({1: ("localhost", free_port())})
    assert told.wait(_AT_ONCE) == [1]
    told.held.close()


def test_a_process_that_is_stopped_is_not_told_before_it_is_killed() -> None:
    with listening() as worker:
        told = Told({1: worker.address})
        assert told.wait(0.2) == []
        worker.stop()
        assert told.wait(1.0) == []
        worker.kill()
        assert told.wait(_AT_ONCE) == [1]
        told.held.close()


def test_one_that_hangs_up_lives_and_is_asked_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = []
    connect = socket.socket.connect_ex

    def counted(made: socket.socket, address: Any) -> int:
        begun.append(address)
        return connect(made, address)

    with listening("hangs_up") as worker:
        monkeypatch.setattr(socket.socket, "connect_ex", counted)
        told = Told({1: ("127.0.0.1", worker.port)})
        assert told.wait(1.0) == []
        # Pauses of 0.02 s, 0.04 s and so on: the sixth would end after 1.26 s.
        assert 2 <= len(begun) <= 6
        worker.kill()
        assert told.wait(_AT_ONCE) == [1]
        told.held.close()


def test_one_that_refuses_and_lives_is_asked_again() -> None:
    port = free_port()
    told = Told({1: ("localhost", port)})
    assert told.wait(_AT_ONCE) == [1]
    told.held.again(1)
    assert told.wait(_AT_ONCE, count=2) == [1, 1]
    told.held.again(1)
    with socket.create_server(("localhost", port)):
        assert told.wait(0.5, count=3) == [1, 1]
    assert told.wait(_AT_ONCE, count=3) == [1, 1, 1]
    told.held.close()


def test_a_name_that_nobody_knows_is_left_alone() -> None:
    told = Told({1: ("no-such-host.invalid", 1)})
    assert told.wait(0.2) == []
    told.held.close()


def test_an_address_that_cannot_be_reached_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect_ex", lambda made, address: errno.EHOSTUNREACH)
    told = Told({1: ("localhost", free_port())})
    assert told.wait(0.2) == []
    told.held.close()


@pytest.mark.parametrize("times", [1, 100_000])
def test_a_wait_ends_when_another_thread_wakes_it(times: int) -> None:
    held = HeldConnections({})

    def wake() -> None:
        for _ in range(times):
            held.wake()

    waking = threading.Timer(0.1, wake)
    waking.start()
    started = time.monotonic()
    assert held.refused(30) == ()
    assert time.monotonic() - started < _AT_ONCE
    waking.join()
    held.close()
    held.wake()

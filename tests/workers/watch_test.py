"""A worker that died ends collectives and waits; a slow one and one that has left do not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.workers.listener import Listener, listening
from tests.workers.local_store import LocalStore
from tf_wu_shard.workers.farewells import Farewells
from tf_wu_shard.workers.loss import Loss
from tf_wu_shard.workers.watch import Watch

# How long it may take on a busy machine; on an idle one it takes a quarter of a second, or two
# seconds and a quarter.
_SOON = 6.0

# Several looks at everything.
_A_WHILE = 0.8


class Collectives:
    """A TensorFlow that says what it is told to say."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.count = 10
        self.lost = True
        self.answering = True
        self.given_up: list[str] = []

    def are_given_up(self) -> str | None:
        return self.reason

    def give_up(self, reason: str) -> None:
        self.given_up.append(reason)

    def is_lost(self, worker: int) -> bool:
        return self.lost

    def answers(self, worker: int) -> bool:
        return self.answering

    def begun(self) -> int:
        return self.count


class Watched:
    """Worker 2, which watches over a process as worker 1."""

    def __init__(self, worker: Listener, guards: bool = True) -> None:
        self.collectives = Collectives()
        self.loss = Loss()
        self.store = LocalStore()
        self.farewells = Farewells(self.store, 2)
        addresses = {1: worker.address}
        self.watch = Watch([1], addresses, self.collectives, self.farewells, self.loss)
        if guards:
            self.watch.guard()

    def reason(self, seconds: float) -> str | None:
        """Why the cluster is lost, once it is, or None when it is not within a time."""
        deadline = time.monotonic() + seconds
        while self.loss.reason is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.loss.reason


@pytest.fixture
def worker() -> Iterator[Listener]:
    with listening() as started:
        yield started


def test_a_dead_worker_ends_collectives_and_waits(worker: Listener) -> None:
    watched = Watched(worker)
    assert watched.reason(_A_WHILE) is None
    worker.kill()
    said = f"worker 1 has ended: nobody listens at localhost:{worker.port} any more"
    assert watched.reason(_SOON) == said
    assert watched.collectives.given_up == [said]
    watched.watch.end()


def test_where_nothing_is_sharded_a_dead_worker_ends_waits_alone(worker: Listener) -> None:
    watched = Watched(worker, guards=False)
    worker.kill()
    assert watched.reason(_SOON) is not None
    assert watched.collectives.given_up == []
    watched.watch.end()


def test_a_worker_that_tensorflow_reaches_is_not_lost_until_it_is(worker: Listener) -> None:
    watched = Watched(worker)
    watched.collectives.lost = False
    worker.kill()
    assert watched.reason(_A_WHILE) is None
    watched.collectives.lost = True
    assert watched.reason(_SOON) is not None
    watched.watch.end()


def test_a_stopped_worker_is_lost_when_tensorflow_says_so(worker: Listener) -> None:
    watched = Watched(worker)
    worker.stop()
    assert watched.reason(_A_WHILE) is None
    watched.collectives.answering = False
    assert watched.reason(_A_WHILE) is None
    watched.collectives.reason = "worker 1 has stopped sending heartbeats"
    assert watched.reason(_SOON) == watched.collectives.reason
    # TensorFlow has done that.
    assert watched.collectives.given_up == []
    watched.watch.end()


def test_collectives_that_were_given_up_lose_nobody_who_answers(worker: Listener) -> None:
    watched = Watched(worker)
    watched.collectives.reason = "shapes differ"
    assert watched.reason(_A_WHILE) is None
    watched.collectives.answering = False
    assert watched.reason(_SOON) == "shapes differ"
    watched.watch.end()


def test_a_worker_that_has_left_is_not_lost_to_one_that_goes_on_without_it(
    worker: Listener,
) -> None:
    watched = Watched(worker)
    Farewells(watched.store, 1).say(watched.collectives.count)
    worker.kill()
    assert watched.reason(_A_WHILE) is None
    watched.watch.end()


@pytest.mark.parametrize("ends", [False, True], ids=["waits for readers", "has ended"])
def test_a_worker_that_has_left_is_lost_to_one_that_begins_another_collective(
    worker: Listener, ends: bool
) -> None:
    watched = Watched(worker)
    Farewells(watched.store, 1).say(watched.collectives.count)
    watched.watch.leaves(1)
    if ends:
        worker.kill()
    assert watched.reason(_A_WHILE) is None
    watched.collectives.count += 1
    said = "the program of worker 1 has ended, and this worker waits for it"
    assert watched.reason(_SOON) == said
    assert watched.collectives.given_up == [said]
    watched.watch.end()


def test_a_worker_that_failed_has_said_nothing_and_is_lost_when_it_ends(worker: Listener) -> None:
    watched = Watched(worker)
    watched.watch.leaves(1)
    assert watched.reason(_A_WHILE) is None
    worker.kill()
    assert watched.reason(_SOON) is not None
    watched.watch.end()


def test_a_watch_that_has_ended_says_nothing_and_ends_at_once(worker: Listener) -> None:
    watched = Watched(worker)
    started = time.monotonic()
    watched.watch.end()
    assert time.monotonic() - started < 1.5
    assert not watched.watch._thread.is_alive()
    worker.kill()
    assert watched.reason(_A_WHILE) is None

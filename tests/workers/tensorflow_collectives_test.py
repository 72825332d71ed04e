"""The watch asks of workers by number; TensorFlow is asked by the names of their tasks."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf  # noqa: F401  sets the package up

from tf_wu_shard.tensorflow_private import instance_keys, worker_collectives, worker_group
from tf_wu_shard.tensorflow_private.worker_group import Peer
from tf_wu_shard.workers import tensorflow_collectives
from tf_wu_shard.workers.tensorflow_collectives import TensorFlowCollectives, count_those_of
from tf_wu_shard.workers.watch import Collectives

PEERS = {0: Peer("/task:0", ("host", 81)), 2: Peer("/task:2", None)}


@pytest.fixture
def collectives(monkeypatch: pytest.MonkeyPatch) -> TensorFlowCollectives:
    """Those of worker 1 of three, which has begun four."""
    strategy: Any = object()
    monkeypatch.setattr(tensorflow_collectives, "_counters", [])
    monkeypatch.setattr(instance_keys, "num_taken", lambda: 0)
    monkeypatch.setattr(worker_group, "number_of", lambda asked: 1 if asked is strategy else 9)
    monkeypatch.setattr(worker_group, "peers_of", lambda asked: PEERS)
    monkeypatch.setattr(worker_group, "counter_of", lambda asked: lambda: 4)
    count_those_of(strategy)
    return TensorFlowCollectives(strategy)


def test_it_is_what_the_watch_asks_for_with_the_addresses_that_are_known(
    collectives: TensorFlowCollectives,
) -> None:
    watched: Collectives = collectives
    assert (collectives.number, collectives.others) == (1, (0, 2))
    assert collectives.addresses == {0: ("host", 81)}
    assert watched.begun() == 4


def test_a_worker_is_asked_for_by_the_name_of_its_task(
    collectives: TensorFlowCollectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_collectives, "is_lost", lambda task: task == "/task:0")
    monkeypatch.setattr(worker_collectives, "answers", lambda task: task == "/task:2")
    assert [collectives.is_lost(worker) for worker in (0, 2)] == [True, False]
    assert [collectives.answers(worker) for worker in (0, 2)] == [False, True]


def test_collectives_are_given_up_with_a_reason_and_asked_about_as_this_worker(
    collectives: TensorFlowCollectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []

    def given_up(number: int) -> str | None:
        return f"{number} {reasons}" if reasons else None

    monkeypatch.setattr(worker_collectives, "give_up", reasons.append)
    monkeypatch.setattr(worker_collectives, "are_given_up", given_up)
    assert collectives.are_given_up() is None
    collectives.give_up("worker 2 has ended")
    assert collectives.are_given_up() == "1 ['worker 2 has ended']"


def test_what_was_begun_by_all_strategies_of_the_process_counts(
    collectives: TensorFlowCollectives, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy: Any = object()
    monkeypatch.setattr(worker_group, "counter_of", lambda asked: lambda: 30)
    count_those_of(strategy)
    assert collectives.begun() == TensorFlowCollectives(strategy).begun() == 34
    # And those that no strategy counts.
    monkeypatch.setattr(instance_keys, "num_taken", lambda: 100)
    assert collectives.begun() == 134

"""Workers agree in two votes, and know each other's variables by what all workers call them."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import tensorflow as tf  # noqa: F401  sets the package up

from tests.workers.threads import FailingStore, together
from tf_wu_shard.errors import StorageError
from tf_wu_shard.tensorflow_private import worker_group
from tf_wu_shard.workers import cluster, tensorflow_collectives
from tf_wu_shard.workers.agreement import Decision, Proposal
from tf_wu_shard.workers.cluster import WorkerCluster, name_of, worker_cluster

SAME = Proposal({"plan": "ab12"})
UNWILLING = Proposal({"plan": "ab12"}, "its slot is on a GPU")

# The order that collectives have two workers in.
MEMBERS = (1, 0)


class Presence:
    """Watches nobody, and notes from when on it would give collectives up."""

    def __init__(self, strategy: Any, store: Any, loss: Any) -> None:
        self.guarded = 0
        self.watch = types.SimpleNamespace(leaves=lambda worker: None, guard=self._guard)

    def _guard(self) -> None:
        self.guarded += 1


class Exchange:
    """Notes what is offered and dropped; all shards of a slot are the workers' numbers."""

    def __init__(self, store: Any, number: int, total: int, seconds: float, leaves: Any) -> None:
        self.total = total
        self.seconds = seconds
        self.done: list[str] = []

    def offer(self, name: str, source: Any) -> None:
        self.done.append(f"offer {name}")

    def drop(self, name: str) -> None:
        self.done.append(f"drop {name}")

    def read(self, name: str) -> dict[int, bytes]:
        return {number: f"{name} of {number}".encode() for number in range(self.total)}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    """The table of all workers that a test makes, each of which is one of two."""
    shared = FailingStore()
    monkeypatch.setattr(cluster, "ClusterStore", lambda loss: shared)
    monkeypatch.setattr(cluster, "Presence", Presence)
    monkeypatch.setattr(cluster, "ShardExchange", Exchange)
    monkeypatch.setattr(worker_group, "number_of", lambda strategy: strategy.number)
    monkeypatch.setattr(worker_group, "count_of", lambda strategy: 2)
    monkeypatch.setattr(worker_group, "members_of", lambda strategy: MEMBERS)
    monkeypatch.setattr(worker_group, "counter_of", lambda strategy: lambda: 0)
    monkeypatch.setattr(tensorflow_collectives, "_counters", [])
    monkeypatch.setattr(cluster, "_clusters", {})
    return shared


class Strategy:
    """What a worker knows itself by."""

    def __init__(self, number: int = 0) -> None:
        self.number = number


def strategy(number: int = 0) -> Any:
    return Strategy(number)


# A cluster keeps no strategy alive.
STRATEGIES = [strategy(number) for number in range(2)]


def workers() -> list[WorkerCluster]:
    return [WorkerCluster(one) for one in STRATEGIES]


def begun(
    two: list[WorkerCluster], *proposals: Proposal, once_made: Callable[[], None] = lambda: None
) -> list[Decision]:
    """The first vote of both."""
    return together(
        [
            partial(one.begin, ["dense_/kernel 3"], proposal, 5.0, once_made)
            for one, proposal in zip(two, proposals, strict=True)
        ]
    )


def guarded(two: list[WorkerCluster]) -> list[int]:
    """How often each began to guard its collectives."""
    presences: list[Any] = [one._presence for one in two]
    return [presence.guarded for presence in presences]


@pytest.mark.usefixtures("store")
def test_all_strategies_of_a_worker_have_one_cluster_of_the_last_that_asked() -> None:
    first = strategy(number=1)
    found = worker_cluster(first)
    assert worker_cluster(first) is found
    assert found.offer("m", lambda seen: None) == "m#1"
    del first
    second = strategy(number=1)
    assert worker_cluster(second) is found
    # It is no other one's slot, though its name is the same.
    assert found.offer("m", lambda seen: None) == "m#2"
    assert found.rank == 0
    assert worker_cluster(strategy(number=0)) is not found
    assert len(tensorflow_collectives._counters) == 3


@pytest.mark.usefixtures("store")
def test_a_strategy_can_be_copied_deep_as_before() -> None:
    first = strategy(number=1)
    found = worker_cluster(first)
    assert worker_cluster(copy.deepcopy(first)) is found


@pytest.mark.usefixtures("store")
def test_shards_come_in_the_order_of_the_group() -> None:
    own = strategy(number=1)
    found = worker_cluster(own)
    assert (found.number, found.total, found.rank) == (1, 2, 0)
    assert found.shards("m#1") == [b"m#1 of 1", b"m#1 of 0"]


@pytest.mark.usefixtures("store")
def test_once_both_votes_agree_what_was_agreed_on_is_made_and_guarded() -> None:
    two, made = workers(), list[str]()
    first = begun(two, SAME, SAME, once_made=lambda: made.append("made"))
    assert [decision.agreed for decision in first] == [True, True]
    assert made == [] and guarded(two) == [0, 0]
    second = together([partial(one.confirm, None) for one in two])
    assert all(decision is not None and decision.agreed for decision in second)
    assert made == ["made"] * 2 and guarded(two) == [1, 1]
    assert [len(one.votes) for one in two] == [2, 2]
    assert all(vote.begun <= vote.ended for one in two for vote in one.votes)


@pytest.mark.usefixtures("store")
def test_whoever_cannot_in_the_end_keeps_all_from_it() -> None:
    two, made = workers(), list[str]()
    begun(two, SAME, SAME, once_made=lambda: made.append("made"))
    second = together([partial(two[0].confirm, None), partial(two[1].confirm, "no memory")])
    assert all(decision is not None and not decision.agreed for decision in second)
    assert second[0] is not None and second[0].reasons[1] == "refused: no memory"
    assert made == []


@pytest.mark.usefixtures("store")
def test_where_the_first_vote_fails_there_is_no_second_and_the_next_is_another() -> None:
    two = workers()
    assert [decision.agreed for decision in begun(two, SAME, UNWILLING)] == [False, False]
    assert [one.confirm(None) for one in two] == [None, None]
    assert [decision.agreed for decision in begun(two, SAME, SAME)] == [True, True]


def test_a_table_that_has_gone_stops_the_worker(store: FailingStore) -> None:
    alone = WorkerCluster(STRATEGIES[0])
    store.fail()
    with pytest.raises(StorageError, match="must stop: the service has gone"):
        alone.begin(["w"], SAME, 5.0, lambda: None)


def test_all_workers_call_a_variable_by_its_number_and_not_by_those_in_its_name() -> None:
    alone, third, fourth = (types.SimpleNamespace() for _ in range(3))
    third._wu_shard_number, fourth._wu_shard_number = 3, 4
    assert name_of("dense_1/kernel:0", alone) == name_of("dense/kernel:0", alone) == "dense/kernel"
    assert name_of("dense_1/kernel:0", third) == name_of("dense_2/kernel", third)
    assert name_of("dense_1/kernel:0", third) != name_of("dense_1/kernel:0", fourth)


@pytest.mark.usefixtures("store")
def test_slots_are_named_by_their_order_and_dropped_ones_are_told_with_the_next() -> None:
    own = WorkerCluster(STRATEGIES[0])
    own.read_seconds = 7.0
    names = [own.offer("dense_/momentum 3", lambda seen: None) for _ in range(2)]
    assert names == ["dense_/momentum 3#1", "dense_/momentum 3#2"]
    own.drop(names[0])
    exchange: Any = own._exchange
    assert exchange.done == [f"offer {name}" for name in names] and exchange.seconds == 7.0
    assert own.offer("bias", lambda seen: None) == "bias#1"
    assert exchange.done[2:] == [f"drop {names[0]}", "offer bias#1"]

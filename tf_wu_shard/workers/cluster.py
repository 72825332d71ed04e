"""The workers of a cluster as this process sees them: votes, its place, its slots' shards.

Made when a step is first traced that trains on several workers, and one for all strategies of the
process: they have the same workers, who know a vote and a slot by their number among all that there
were. It knows no graph: `weight_update.all_workers` asks it, `storage.worker_shards` keeps slots by
it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from tf_wu_shard.errors import StorageError
from tf_wu_shard.tensorflow_private import variable_numbers, worker_group
from tf_wu_shard.workers.agreement import Decision, Proposal, Voter
from tf_wu_shard.workers.cluster_store import ClusterStore
from tf_wu_shard.workers.loss import Loss
from tf_wu_shard.workers.presence import Presence
from tf_wu_shard.workers.shard_exchange import ShardExchange, Snapshot
from tf_wu_shard.workers.store import StoreError
from tf_wu_shard.workers.tensorflow_collectives import count_those_of

# How long a reader waits for other workers where the user says nothing else.
READ_SECONDS = 30.0

_lock = threading.Lock()

# By the number of this worker and how many there are. A process has one cluster.
_clusters: dict[tuple[int, int], WorkerCluster] = {}

# Not on the strategies themselves: optimizers and models are copied deep, strategy and all.
_of_strategies: weakref.WeakKeyDictionary[tf.distribute.Strategy, WorkerCluster] = (
    weakref.WeakKeyDictionary()
)


@dataclasses.dataclass(frozen=True)
class _Ballot:
    """A first vote that agreed, and that a second one has to follow."""

    name: str
    seconds: float
    once_made: Callable[[], None]


@dataclasses.dataclass(frozen=True)
class VoteTimes:
    """When this worker took part in a vote, in seconds of `time.monotonic`.

    Attributes:
        begun: Before it proposed.
        ended: When it knew the decision; it may have waited for others most of that time.
    """

    begun: float
    ended: float


class WorkerCluster:
    """What this worker agrees on with the others, and tells them.

    Attributes:
        number: This worker's number.
        total: How many workers there are.
        votes: Of this worker so far, oldest first, those that agreed and those that did not.
        read_seconds: How long a reader of a whole slot waits for other workers; it counts from the
            first slot that lives in shards on.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        """Prepares; nothing is asked of other workers yet, and nothing watched.

        Args:
            strategy: A MultiWorkerMirroredStrategy.
        """
        self.number = worker_group.number_of(strategy)
        self.total = worker_group.count_of(strategy)
        self._strategy = weakref.ref(strategy)
        self._loss = Loss()
        self._store = ClusterStore(self._loss)
        self._votes: collections.Counter[str] = collections.Counter()
        self._slots: collections.Counter[str] = collections.Counter()
        self._dropped: collections.deque[str] = collections.deque()
        self._open: _Ballot | None = None
        self.votes: list[VoteTimes] = []
        self.read_seconds = READ_SECONDS

    @functools.cached_property
    def members(self) -> tuple[int, ...]:
        """The workers' numbers in the order of their group; all workers ask together."""
        return worker_group.members_of(self._living_strategy())

    @property
    def rank(self) -> int:
        """This worker's place in the group, which is the number of its shards."""
        return self.members.index(self.number)

    def begin(
        self,
        about: Iterable[str],
        proposal: Proposal,
        seconds: float,
        once_made: Callable[[], None],
    ) -> Decision:
        """The first vote: whether all want the same.

        Where they do, a second one has to follow: `confirm`.

        Args:
            about: What the vote is about, as `name_of` says it of variables; the same words on
                all workers. The n-th vote about the same things is the n-th of every other worker,
                those that were missed counted.
            proposal: What this worker wants.
            seconds: How long to wait for the others.
            once_made: Called when the second vote has agreed, too.

        Raises:
            StorageError: If it cannot be known what was decided, as worker 0 is gone.
        """
        topic = hashlib.sha256("\n".join(sorted(about)).encode()).hexdigest()[:16]
        with self._reaching_the_table():
            voter = self._voter(seconds)
            self._votes[topic] += 1
            while voter.has_missed(f"{topic}/{self._votes[topic]}/plan", proposal):
                self._votes[topic] += 1
        name = f"{topic}/{self._votes[topic]}"
        decision = self._vote(f"{name}/plan", proposal, seconds)
        if decision.agreed:
            self._open = _Ballot(name, seconds, once_made)
            # Now that all are there; whoever is not would be waited for.
            _ = self.members
        return decision

    def confirm(self, refusal: str | None) -> Decision | None:
        """The second vote: whether all have done what they agreed on, and nothing has changed yet.

        Args:
            refusal: Why this worker cannot; None where it can.

        Returns:
            The decision; None where no first vote waits for it.

        Raises:
            StorageError: As `begin`.
        """
        if self._open is None:
            return None
        ballot, self._open = self._open, None
        decision = self._vote(f"{ballot.name}/ready", Proposal({}, refusal), ballot.seconds)
        if decision.agreed:
            self._presence.watch.guard()
            ballot.once_made()
        return decision

    def agree(self, about: Iterable[str], proposal: Proposal, seconds: float) -> Decision:
        """A vote that no second one has to follow; from it on the collectives are guarded.

        Args:
            about: As in `begin`.
            proposal: What this worker wants.
            seconds: How long to wait for the others.

        Raises:
            StorageError: As `begin`.
        """
        topic = hashlib.sha256("\n".join(("once", *sorted(about))).encode()).hexdigest()[:16]
        self._votes[topic] += 1
        decision = self._vote(f"{topic}/{self._votes[topic]}", proposal, seconds)
        if decision.agreed:
            self._presence.watch.guard()
        return decision

    def has_left(self, worker: int) -> bool:
        """Whether the program of a worker has ended as programs do.

        Args:
            worker: Its number.
        """
        return self._presence.has_left(worker)

    @property
    def store(self) -> ClusterStore:
        """The table that all workers share."""
        return self._store

    def belongs_to(self, strategy: tf.distribute.Strategy) -> None:
        """Asks this strategy from now on what only a strategy knows.

        Args:
            strategy: A MultiWorkerMirroredStrategy of these workers; it is not kept alive.
        """
        self._strategy = weakref.ref(strategy)

    def _living_strategy(self) -> tf.distribute.Strategy:
        strategy = self._strategy()
        assert strategy is not None, "whoever asks holds the strategy that was last given"
        return strategy

    @functools.cached_property
    def _presence(self) -> Presence:
        """Made when something is first asked of the others."""
        return Presence(self._living_strategy(), self._store, self._loss)

    def _vote(self, topic: str, proposal: Proposal, seconds: float) -> Decision:
        begun = time.monotonic()
        with self._reaching_the_table():
            voted = self._voter(seconds).vote(topic, proposal)
        self.votes.append(VoteTimes(begun, time.monotonic()))
        return voted

    def _voter(self, seconds: float) -> Voter:
        _ = self._presence
        return Voter(self._store, self.number, self.total, seconds)

    @contextlib.contextmanager
    def _reaching_the_table(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise StorageError(
                "this worker does not learn whether all workers shard the update, and must stop:"
                f" {error}"
            ) from error

    @functools.cached_property
    def _exchange(self) -> ShardExchange:
        leaves = self._presence.watch.leaves
        made = ShardExchange(self._store, self.number, self.total, self.read_seconds, leaves)
        self._presence.exchange = made
        return made

    def offer(self, variable: str, source: Callable[[int | None], Snapshot | None]) -> str:
        """Hands this worker's shard of a slot to whoever asks for the whole.

        Args:
            variable: The variable, as `name_of` says it. The n-th slot of a name is the n-th of
                every worker.
            source: What the shard is now; None while it is written.

        Returns:
            The name by which it is asked for.
        """
        while self._dropped:
            self._exchange.drop(self._dropped.popleft())
        self._slots[variable] += 1
        name = f"{variable}#{self._slots[variable]}"
        self._exchange.offer(name, source)
        return name

    def drop(self, name: str) -> None:
        """Notes that this worker needs a slot no more; it is handed out until no worker does.

        May be called wherever garbage is collected: the others are told at the next `offer`.
        """
        self._dropped.append(name)

    def shards(self, name: str) -> list[bytes]:
        """All shards of a slot, in the order of the group.

        Args:
            name: What `offer` returned.

        Raises:
            StorageError: If they did not all answer, or are at different steps.
        """
        found = self._exchange.read(name)
        return [found[number] for number in self.members]


def name_of(name: str, variable: Any) -> str:
    """What all workers call a variable.

    Args:
        name: Its name here. Numbers in it do not count: TensorFlow and Keras count them for each
            process, and number no first one.
        variable: It; any object that is no variable of several workers goes by its name alone.
    """
    number = variable_numbers.number_of(variable)
    words = re.sub(r"_?[0-9]+", "", name.partition(":")[0])
    return words if number is None else f"{words} {number}"


def worker_cluster(strategy: tf.distribute.Strategy) -> WorkerCluster:
    """The workers of a strategy; the same object for all strategies of these workers.

    Args:
        strategy: A MultiWorkerMirroredStrategy.
    """
    with _lock:
        found = _of_strategies.get(strategy)
        if found is None:
            place = worker_group.number_of(strategy), worker_group.count_of(strategy)
            found = _clusters.get(place)
            if found is None:
                found = _clusters[place] = WorkerCluster(strategy)
            _of_strategies[strategy] = found
            count_those_of(strategy)
        found.belongs_to(strategy)
        return found

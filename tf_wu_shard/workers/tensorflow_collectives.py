"""The collectives of one worker, as the watch over the other workers asks for them."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tf_wu_shard.tensorflow_private import instance_keys, worker_collectives, worker_group

# A worker says once how many collectives it has begun, whatever their strategies.
_counters: list[Callable[[], int]] = []


def count_those_of(strategy: tf.distribute.Strategy) -> None:
    """Lets the collectives of a strategy count, see `watch.Collectives.begun`; once for each.

    Args:
        strategy: A MultiWorkerMirroredStrategy; it is not kept alive.
    """
    _counters.append(worker_group.counter_of(strategy))


class TensorFlowCollectives:
    """See `watch.Collectives`; it does not keep the strategy alive.

    Attributes:
        number: This worker's number.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        """Makes those of this worker.

        Args:
            strategy: A MultiWorkerMirroredStrategy of one replica a worker.
        """
        self.number = worker_group.number_of(strategy)
        self._peers = worker_group.peers_of(strategy)

    @property
    def others(self) -> tuple[int, ...]:
        """The other workers' numbers, as far as they are known."""
        return tuple(self._peers)

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The other workers' hosts and ports, by number, as far as they are known."""
        known = {number: peer.address for number, peer in self._peers.items()}
        return {number: address for number, address in known.items() if address is not None}

    def are_given_up(self) -> str | None:
        """See `watch.Collectives`."""
        return worker_collectives.are_given_up(self.number)

    def give_up(self, reason: str) -> None:
        """See `watch.Collectives`."""
        worker_collectives.give_up(reason)

    def is_lost(self, worker: int) -> bool:
        """See `watch.Collectives`."""
        return worker_collectives.is_lost(self._peers[worker].task)

    def answers(self, worker: int) -> bool:
        """See `watch.Collectives`."""
        return worker_collectives.answers(self._peers[worker].task)

    def begun(self) -> int:
        """See `watch.Collectives`; those of all strategies that count, and those of our own."""
        return sum(counter() for counter in _counters) + instance_keys.num_taken()

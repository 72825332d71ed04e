"""What workers hand in for a round and get of it, and where they say that it has started."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

from tf_wu_shard.partial_sums.rounds.record import Part


class Table(Protocol):
    """Where workers say that a round has started."""

    def start(self, number: int) -> None:
        """Says so; another worker may have said it."""
        ...

    def wait_for(self, number: int) -> None:
        """Waits until one has said so."""
        ...

    def say(self, number: int, worker: int, has_batch: bool) -> None:
        """Says whether a worker has a batch for the step that gets a round's sum."""
        ...

    def ask(self, number: int, worker: int) -> bool:
        """Waits until a worker has said it."""
        ...


@dataclasses.dataclass(frozen=True)
class Contribution:
    """What a worker hands in for a round.

    Attributes:
        gradients: Of each step since the last round, oldest first, its gradients.
        values: The other values, the last that a step handed in; None where none has.
        said: Values that steps gave after their exchange, the last of each, and whether there was
            one.
        part: What is noted of it.
    """

    gradients: Sequence[Sequence[Any]]
    values: Sequence[Any] | None
    said: Sequence[tuple[Any, bool]]
    part: Part


@dataclasses.dataclass(frozen=True)
class RoundSum:
    """What all workers get of a round.

    Attributes:
        gradients: The sums of gradients.
        values: The sums of the other values.
        said: Those of what was given after an exchange; None where no worker had given one.
        parts: Per worker, what its part was.
    """

    gradients: Sequence[Any]
    values: Sequence[Any]
    said: Sequence[Any | None]
    parts: Sequence[Part]


class RoundsEndedError(Exception):
    """No sum comes any more; the message says why."""


def no_sum(contribution: Contribution) -> RoundSum:
    """Takes part in no round.

    Raises:
        RoundsEndedError: Always.
    """
    raise RoundsEndedError

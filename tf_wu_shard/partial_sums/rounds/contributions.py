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

    def say(self, number: int, worker: int, yes: bool) -> None:
        """Says of a round whether a worker takes the step that gets its sum.

        Of the last round before all pause it says whether what is late may update the weights.
        """
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


class HandedIn:
    """What the steps of one worker have handed in since its last round.

    Attributes:
        gradients: Of each of these steps, oldest first, its gradients.
    """

    def __init__(self) -> None:
        """Starts with nothing."""
        self.gradients: list[Sequence[Any]] = []
        self._steps: list[int] = []
        self._values: Sequence[Any] | None = None
        self._said: list[tuple[Any, bool]] = []

    def add(self, step: int, gradients: Sequence[Any], values: Sequence[Any]) -> None:
        """Takes what a step hands in.

        Args:
            step: The step's number.
            gradients: They are added up until a round takes them.
            values: They replace those of the step before.
        """
        self._steps.append(step)
        self.gradients.append(gradients)
        self._values = values

    def new_value(self, nothing: Any) -> int:
        """The number of one more value that steps give after their exchange.

        Args:
            nothing: A zero of its shape.
        """
        self._said.append((nothing, False))
        return len(self._said) - 1

    def say(self, number: int, value: Any) -> None:
        """Takes such a value, in the place of the one before."""
        self._said[number] = (value, True)

    def taken(self, round_number: int, holds_up: bool, is_out: bool) -> Contribution:
        """What a round takes of it; gradients are taken once.

        Args:
            round_number: The round's number.
            holds_up: Whether the others wait for this worker.
            is_out: Whether it has no batch for the step that gets the sum.
        """
        gradients, self.gradients = self.gradients, []
        steps, self._steps = self._steps, []
        part = Part(
            in_time=round_number in steps,
            gradients=len(steps),
            staleness=round_number - min(steps, default=round_number),
            holds_up=holds_up,
            is_out=is_out,
        )
        return Contribution(gradients, self._values, [*self._said], part)


class RoundsEndedError(Exception):
    """No sum comes any more; the message says why."""


def no_sum(contribution: Contribution) -> RoundSum:
    """Takes part in no round.

    Raises:
        RoundsEndedError: Always.
    """
    raise RoundsEndedError

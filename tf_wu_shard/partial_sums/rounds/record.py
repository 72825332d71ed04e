"""What happened in rounds so far: who was in time, how late gradients were, who held others up."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

# Of this many steps the times are kept.
_STEPS_KEPT = 10_000


@dataclasses.dataclass(frozen=True)
class Part:
    """What one worker's part in one round was.

    Attributes:
        in_time: Whether it handed in the gradient of the step that gets the round's sum.
        gradients: How many it handed in.
        staleness: By how many rounds the oldest of them was late; 0 where there are none.
        holds_up: Whether all others waited for it, as it was as far behind as it may be.
        is_out: Whether it has no batch for that step.
    """

    in_time: bool
    gradients: int
    staleness: int
    holds_up: bool
    is_out: bool

    def numbers(self) -> tuple[float, ...]:
        """As they travel."""
        return tuple(map(float, dataclasses.astuple(self)))

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Part:
        """What travelled."""
        in_time, gradients, staleness, holds_up, is_out = numbers
        return cls(bool(in_time), round(gradients), round(staleness), bool(holds_up), bool(is_out))


NUM_NUMBERS = len(dataclasses.fields(Part))


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """One step of this worker, in seconds of `time.monotonic`.

    Attributes:
        handed_in: When its gradient was there.
        went_on: When it got a sum.
    """

    handed_in: float
    went_on: float


class Record:
    """What one worker knows of all rounds.

    Attributes:
        rounds: How many there were.
        wanted: Of how many gradients each could be in time, summed over the workers.
        in_time: Per worker, in how many rounds its gradient was in time.
        holds_up: Per worker, in how many the others waited for it to catch up.
        staleness: The largest of any gradient.
        steps: The times of this worker's last steps.
    """

    def __init__(self, total: int) -> None:
        """Starts with no round.

        Args:
            total: How many workers there are.
        """
        self.rounds = 0
        self.wanted = 0
        self.in_time = [0] * total
        self.holds_up = [0] * total
        self.staleness = 0
        self.steps: collections.deque[StepTimes] = collections.deque(maxlen=_STEPS_KEPT)

    def add(self, parts: Sequence[Part]) -> None:
        """Notes a round.

        Args:
            parts: Per worker, what its part was.
        """
        # A round that no worker has a gradient of its own for is no step's.
        is_step = any(part.in_time for part in parts)
        self.rounds += is_step
        for worker, part in enumerate(parts):
            self.wanted += is_step and not part.is_out
            self.in_time[worker] += part.in_time
            self.holds_up[worker] += part.holds_up
            self.staleness = max(self.staleness, part.staleness)

    @property
    def share_in_time(self) -> float:
        """Which share of the workers' gradients was in time, from 0 to 1; 1 before any round."""
        return sum(self.in_time) / self.wanted if self.wanted else 1.0

    @property
    def summary(self) -> str:
        """In a few words."""
        if not self.rounds:
            return "no round was taken yet"
        said = f"{100 * self.share_in_time:.1f} % of them were in time in {self.rounds} rounds"
        if self.staleness:
            said += f", the others at most {self.staleness} late"
        most = max(self.holds_up)
        if most:
            slowest = self.holds_up.index(most)
            said += f"; the others waited for worker {slowest} to catch up in {most}"
        return said

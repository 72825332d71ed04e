"""What trainings under an imbalance took and came to, pair by pair with synchronous ones."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence

from tf_wu_shard.bench.imbalance.delays import Kind

SYNCHRONOUS = "synchronous"


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of one worker, in seconds of the machine's clock.

    Attributes:
        begun: When it began.
        ready: After its delay.
        handed_in: When its gradient was there.
        ended: When it had a sum and had updated its weights.
    """

    begun: float
    ready: float
    handed_in: float
    ended: float


@dataclasses.dataclass(frozen=True)
class Training:
    """One training of all workers.

    Attributes:
        mode: "synchronous", "majority" or "solo".
        momentum: Of SGD.
        seed: Of weights and data.
        steps: [workers][steps].
        losses: Per step, the mean of the workers' losses.
        share_in_time: Of the workers' gradients, from 0 to 1.
        staleness: By how many rounds a gradient was late at most.
        held_up: In how many rounds a worker was as late as it may be, and the others waited.
        score: Of the examples that were held out.
    """

    mode: str
    momentum: float
    seed: int
    steps: tuple[tuple[Step, ...], ...]
    losses: tuple[float, ...]
    share_in_time: float
    staleness: int
    held_up: int
    score: float

    @property
    def step_s(self) -> float:
        """Seconds a step, over all of them, until the last worker has taken the last one."""
        begun = max(worker[0].begun for worker in self.steps)
        return (max(worker[-1].ended for worker in self.steps) - begun) / len(self.losses)

    @property
    def bound(self) -> float:
        """How much faster it could be if no worker waited for another.

        The mean over the steps of the slowest worker's own time over that of all workers.
        """
        own = [[step.handed_in - step.begun for step in worker] for worker in self.steps]
        slowest = statistics.fmean(max(each) for each in zip(*own, strict=True))
        return slowest / statistics.fmean(statistics.fmean(worker) for worker in own)


@dataclasses.dataclass(frozen=True)
class ImbalanceResult:
    """All trainings.

    Attributes:
        kind: What makes workers late.
        milliseconds: The longest delay.
        task: What was trained.
        workers: How many.
        score_name: What a score is.
        trainings: Of each seed and momentum, one in each mode.
    """

    kind: Kind
    milliseconds: float
    task: str
    workers: int
    score_name: str
    trainings: tuple[Training, ...]

    def of(self, mode: str, momentum: float) -> list[Training]:
        """The trainings of a mode and a momentum, by seed."""
        return [one for one in self.trainings if (one.mode, one.momentum) == (mode, momentum)]

    @property
    def rows(self) -> list[tuple[str, float]]:
        """All modes and momentums, in the order in which they were trained."""
        return [*dict.fromkeys((one.mode, one.momentum) for one in self.trainings)]

    @property
    def bound(self) -> float:
        """See `Training.bound`; the median of trainings in rounds."""
        found = [one.bound for one in self.trainings if one.mode != SYNCHRONOUS]
        return statistics.median(found)

    def gain(self, mode: str, momentum: float) -> float:
        """How many times as fast as synchronous: the median over the seeds."""
        pairs = zip(self.of(SYNCHRONOUS, momentum), self.of(mode, momentum), strict=True)
        return statistics.median(one.step_s / other.step_s for one, other in pairs)

    def difference(self, mode: str, momentum: float) -> tuple[float, float]:
        """By how much scores differ from synchronous ones, and the standard error of that."""
        pairs = zip(self.of(SYNCHRONOUS, momentum), self.of(mode, momentum), strict=True)
        found = [other.score - one.score for one, other in pairs]
        error = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
        return statistics.fmean(found), error

    def to_json(self) -> str:
        """All figures of all trainings as indented JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    def __str__(self) -> str:
        """The table that the command prints."""
        seeds = len({one.seed for one in self.trainings})
        steps = len(self.trainings[0].losses)
        made = {
            "one": f"one of {self.workers} late by {self.milliseconds:g} ms",
            "ramp": f"late by 0 to {self.milliseconds:g} ms, shifting",
            "none": f"all take {self.milliseconds:g} ms more, nobody is late",
            "text": "lengths of real text",
        }[self.kind]
        title = f"{self.task}, {self.workers} workers, {made}, {seeds} seeds of {steps} steps"
        head = (
            f"{'':<13}{'momentum':>9}{'ms a step':>11}{'times as fast':>15}{'in time':>9}"
            f"{'late':>6}  {self.score_name}"
        )
        lines = [title, "", head, *(self._row(*row) for row in self.rows), ""]
        if self.rows and any(mode != SYNCHRONOUS for mode, _ in self.rows):
            lines.append(
                f"if no worker waited for another: {self.bound:.2f} times as fast (the slowest"
                " worker's own time in a step over that of all, measured in rounds)"
            )
        return "\n".join(lines)

    def _row(self, mode: str, momentum: float) -> str:
        found = self.of(mode, momentum)
        middle = 1e3 * statistics.median(one.step_s for one in found)
        share = 100 * statistics.fmean(one.share_in_time for one in found)
        score = statistics.fmean(one.score for one in found)
        line = f"{mode:<13}{momentum:>9g}{middle:>11.1f}"
        if mode == SYNCHRONOUS:
            return f"{line}{'':>15}{'':>9}{'':>6}  {score:.2f}"
        more, error = self.difference(mode, momentum)
        staleness = max(one.staleness for one in found)
        spread = "" if math.isnan(error) else f", standard error {error:.2f}"
        return (
            f"{line}{self.gain(mode, momentum):>15.2f}{share:>8.0f}%{staleness:>6}"
            f"  {score:.2f} ({more:+.2f}{spread})"
        )


def waits_of(steps: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """Steps that were synchronous, with when each gradient was there.

    Nobody waits in the step of the worker that comes last: what it takes from being ready, each
    other one takes as well, and what is more is waiting.

    Args:
        steps: [workers][steps]; `handed_in` is not known.
    """
    found: list[list[Step]] = [[] for _ in steps]
    for each in zip(*steps, strict=True):
        work = min(step.ended - step.ready for step in each)
        for worker, step in zip(found, each, strict=True):
            worker.append(dataclasses.replace(step, handed_in=step.ready + work))
    return found

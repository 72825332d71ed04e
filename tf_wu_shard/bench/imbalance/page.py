"""The pictures of trainings under an imbalance: who waited for whom, and the loss over time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tf_wu_shard.bench.imbalance.result import SYNCHRONOUS, ImbalanceResult, Training
from tf_wu_shard.report.charts import LineChart, Role, Series
from tf_wu_shard.report.gantt import Gantt, Lane, Span
from tf_wu_shard.report.html import Listing, Page, Section

_ROLES: dict[str, Role] = {SYNCHRONOUS: "baseline", "majority": "sharded", "solo": "other"}

# Steps of the synchronous training whose time the Gantt charts show.
_SHOWN_STEPS = 16

_POINTS = 60

# A loss of one step is of a few examples.
_SMOOTHED_STEPS = 15


def page(result: ImbalanceResult) -> Page:
    """The report.

    Args:
        result: What was measured.
    """
    momentums = [*dict.fromkeys(one.momentum for one in result.trainings)]
    return Page(
        title="Partial sums: workers that are not equally fast",
        text="What was printed, who waited for whom, and the loss over time.",
        sections=(
            Section(
                title="Figures",
                text="",
                verdict="",
                good=None,
                listings=(Listing("What was measured", "", tuple(str(result).splitlines())),),
            ),
            *(_section(result, momentum) for momentum in momentums),
        ),
    )


def _section(result: ImbalanceResult, momentum: float) -> Section:
    first = [one for one in result.trainings if one.momentum == momentum]
    seed = first[0].seed
    shown = [one for one in first if one.seed == seed]
    return Section(
        title=f"SGD with momentum {momentum:g}",
        text=f"The trainings of seed {seed}.",
        verdict="",
        good=None,
        gantts=_gantts(shown),
        lines=(_losses(shown),),
    )


def _gantts(trainings: Sequence[Training]) -> tuple[Gantt, ...]:
    synchronous = next(one for one in trainings if one.mode == SYNCHRONOUS)
    begin, last = _begin(synchronous), min(_SHOWN_STEPS, len(synchronous.losses)) - 1
    end = max(worker[last].ended for worker in synchronous.steps) - begin
    return tuple(_gantt(one, end) for one in trainings)


def _gantt(training: Training, end: float) -> Gantt:
    begin = _begin(training)
    lanes = []
    for number, worker in enumerate(training.steps):
        spans: list[Span] = []
        for step in worker:
            spans += [
                Span("delay", step.begun - begin, step.ready - begin),
                Span("work", step.ready - begin, step.handed_in - begin),
                Span("wait", step.handed_in - begin, step.ended - begin),
            ]
        lanes.append(Lane(f"worker {number}", tuple(spans)))
    taken = sum(worker.ended - begin <= end for worker in training.steps[0])
    note = f"{taken} steps of worker 0."
    if training.mode == SYNCHRONOUS:
        note += (
            " What all workers take in a step counts as work, the sums included, and what one takes"
            " more than the last to come as waiting."
        )
    else:
        note += " The update counts as waiting."
    return Gantt(training.mode, tuple(lanes), end, note)


def _losses(trainings: Sequence[Training]) -> LineChart:
    end = max(_times(one)[-1] for one in trainings)
    grid = [end * (point + 1) / _POINTS for point in range(_POINTS)]
    return LineChart(
        title="loss over time",
        x_label="time",
        x_ends=(f"{grid[0]:.1f} s", f"{end:.1f} s"),
        series=tuple(
            Series(one.mode, _ROLES[one.mode], tuple(_at(one, time) for time in grid))
            for one in trainings
        ),
        note=f"Of the batches of all workers, the mean of {_SMOOTHED_STEPS} steps.",
    )


def _at(training: Training, time: float) -> float:
    """The mean of the last losses at a time; nan before the first and after the last step."""
    times = _times(training)
    taken = sum(one <= time for one in times)
    if not taken or (taken == len(times) and time > times[-1] * (1 + 1 / _POINTS)):
        return math.nan
    return statistics.fmean(training.losses[max(0, taken - _SMOOTHED_STEPS) : taken])


def _times(training: Training) -> list[float]:
    begin = _begin(training)
    each = zip(*training.steps, strict=True)
    return [max(step.ended for step in steps) - begin for steps in each]


def _begin(training: Training) -> float:
    return min(worker[0].begun for worker in training.steps)

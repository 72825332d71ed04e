"""The page of trainings under an imbalance: who did what when, and the loss over time."""

from __future__ import annotations

import math

from tests.bench.imbalance.samples import result, training
from tf_wu_shard.bench.imbalance.page import page
from tf_wu_shard.bench.imbalance.result import SYNCHRONOUS, ImbalanceResult, Step, Training
from tf_wu_shard.report.gantt import Gantt, Span
from tf_wu_shard.report.html import render


def test_the_page_draws_who_did_what_and_the_losses() -> None:
    text = render(page(result()))
    assert text.count("<rect ") == 2 * (4 * 2 + 8 * 2) - 2 * 8
    assert text.count("<polyline") == 2
    assert "worker 1" in text


def test_the_figures_are_what_is_printed() -> None:
    measured = result()
    figures, *_ = page(measured).sections
    (listing,) = figures.listings
    assert [*listing.lines] == str(measured).splitlines()


def test_each_momentum_has_a_section_of_its_first_seed() -> None:
    others = [training(mode, seed, 0.1, 80.0, 0.9) for mode in MODES for seed in (7, 8)]
    _, *sections = page(result(*others)).sections
    assert [(one.title, one.text) for one in sections] == [
        ("SGD with momentum 0", "The trainings of seed 0."),
        ("SGD with momentum 0.9", "The trainings of seed 7."),
    ]
    for one in sections:
        assert [chart.title for chart in one.gantts] == [*MODES]
        assert [series.label for chart in one.lines for series in chart.series] == [*MODES]


def test_a_lane_shows_delay_work_and_wait_of_each_step_from_the_first_begin_on() -> None:
    late = (Step(5.0, 5.5, 6.0, 6.25), Step(6.25, 6.5, 7.0, 7.0))
    first, _ = _gantts(_of_two_steps(late))
    assert first.lanes[1].label == "worker 1"
    assert first.lanes[1].spans == (
        Span("delay", 1.0, 1.5),
        Span("work", 1.5, 2.0),
        Span("wait", 2.0, 2.25),
        Span("delay", 2.25, 2.5),
        Span("work", 2.5, 3.0),
        Span("wait", 3.0, 3.0),
    )


def test_all_charts_end_with_the_last_worker_of_the_synchronous_training() -> None:
    first, other = _gantts(_of_two_steps((Step(4.0, 4.0, 5.0, 5.5), Step(5.5, 5.5, 6.5, 8.0))))
    assert first.end == other.end == 4.0
    assert first.note.startswith("2 steps of worker 0. What all workers take")
    # Two of its four steps of 2 s are within these 4 s.
    assert other.note == "2 steps of worker 0. The update counts as waiting."


def test_a_loss_is_known_once_the_last_worker_has_taken_the_step() -> None:
    late = (Step(4.0, 4.0, 5.0, 7.0), Step(7.0, 7.0, 7.0, 8.0))
    (chart,) = page(_measured(_of_two_steps(late)[:1])).sections[1].lines
    (series,) = chart.series
    # From 3 s on, of 4 s.
    assert [math.isnan(loss) for loss in series.values] == [True] * 44 + [False] * 16


def test_the_charts_show_the_first_sixteen_synchronous_steps() -> None:
    (gantt,) = _gantts([_long(20)])
    assert gantt.end == 16.0


def test_a_loss_is_the_mean_of_the_last_fifteen_steps() -> None:
    (chart,) = page(_measured([_long(60)])).sections[1].lines
    (series,) = chart.series
    # One step a second, 60 points: the loss of step n is n.
    assert series.values[0] == 0.0
    assert series.values[9] == sum(range(10)) / 10
    assert series.values[59] == sum(range(45, 60)) / 15
    assert chart.x_ends == ("1.0 s", "60.0 s")


def test_nothing_is_drawn_before_a_first_step_and_after_a_last_one() -> None:
    slow, fast = _long(2, seconds=30.0), _long(2, seconds=10.0, mode="solo")
    (chart,) = page(_measured([slow, fast])).sections[1].lines
    of_slow, of_fast = (one.values for one in chart.series)
    assert [number for number, loss in enumerate(of_slow) if math.isnan(loss)] == [*range(29)]
    drawn = [number for number, loss in enumerate(of_fast) if not math.isnan(loss)]
    # From 10 s to 20 s, at one point a second.
    assert drawn == [*range(9, 20)]


MODES = SYNCHRONOUS, "majority"


def _long(steps: int, *, seconds: float = 1.0, mode: str = SYNCHRONOUS) -> Training:
    """One worker, steps of equal lengths, losses 0, 1, ..."""
    each = tuple(
        Step(n * seconds, n * seconds, (n + 0.5) * seconds, (n + 1) * seconds) for n in range(steps)
    )
    losses = tuple(map(float, range(steps)))
    return Training(mode, 0.0, 0, (each,), losses, 1.0, 0, 0, 90.0)


def _of_two_steps(late: tuple[Step, ...]) -> list[Training]:
    """Two workers, the second as it is given, and rounds of four steps of 2 s."""
    early = (Step(4.0, 4.0, 5.0, 6.0), Step(6.0, 6.0, 7.0, 7.0))
    synchronous = Training(SYNCHRONOUS, 0.0, 0, (early, late), (1.0, 1.0), 1.0, 0, 0, 90.0)
    return [synchronous, training("majority", 0, 2.0, 90.0)]


def _measured(trainings: list[Training]) -> ImbalanceResult:
    return ImbalanceResult("one", 80, "digits", 2, "accuracy, %", tuple(trainings))


def _gantts(trainings: list[Training]) -> tuple[Gantt, ...]:
    _, section = page(_measured(trainings)).sections
    return section.gantts

"""The corpus is as large and as varied as it says, and its page has all of it."""

from __future__ import annotations

from tests.real.corpus import programs
from tests.real.program import GROUNDS
from tools.real.table import parsed, rendered
from tools.real_programs import PAGE

# How many may share less than the bar, with a reason.
REASONS = 3


def test_there_are_forty_programs_on_two_replicas_at_least() -> None:
    assert len([p for p in programs().values() if not p.refused]) >= 40


def test_at_most_three_have_a_reason_to_stay_whole() -> None:
    assert len([p.name for p in programs().values() if p.alone]) <= REASONS


def test_every_program_says_what_is_odd_about_it_and_no_two_the_same() -> None:
    odd = [p.odd for p in programs().values()]
    assert all(odd) and len({*odd}) == len(odd)


def test_the_page_has_every_program_on_every_ground_it_runs_on() -> None:
    cells, _, _ = parsed(PAGE.read_text(encoding="utf-8"))
    wanted = {(n, g) for n, p in programs().items() for g in GROUNDS if g not in p.refused}
    assert {*cells} == wanted, f"run python -m tools.real_programs to make {PAGE.name} anew"


def test_the_page_is_as_it_would_be_written() -> None:
    page = PAGE.read_text(encoding="utf-8")
    cells, repeats, rest = parsed(page)
    assert rendered(cells, programs(), repeats, rest) == page

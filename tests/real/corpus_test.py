"""The corpus is as large as it says, and honest about its exceptions."""

from __future__ import annotations

from tests.real.corpus import programs

# How many may share less than the bar, with a reason.
REASONS = 3


def test_there_are_forty_programs_on_two_replicas_at_least() -> None:
    assert len([p for p in programs().values() if not p.refused]) >= 40


def test_at_most_three_have_a_reason_to_stay_whole() -> None:
    assert len([p.name for p in programs().values() if p.alone]) <= REASONS


def test_every_program_says_what_is_odd_about_it_and_no_two_the_same() -> None:
    odd = [p.odd for p in programs().values()]
    assert all(odd) and len({*odd}) == len(odd)

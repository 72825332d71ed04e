"""docs/real_programs.md has every program, and is read back as it was written."""

from __future__ import annotations

from tests.real.corpus import programs
from tests.real.outcome import Outcome
from tests.real.program import GROUNDS, MIRRORED, Program, Trained
from tools.real.table import Cell, differences, parsed, rendered
from tools.real_programs import PAGE


def test_the_page_has_every_program_on_grounds_that_it_runs_on() -> None:
    page = PAGE.read_text(encoding="utf-8")
    cells, _, _ = parsed(page)
    wanted = {(n, g) for n, p in programs().items() for g in GROUNDS if g not in p.refused}
    again = f"run python -m tools.real_programs to make {PAGE.name} anew"
    assert {*cells} == wanted, again


def test_the_page_is_as_it_would_be_written() -> None:
    page = PAGE.read_text(encoding="utf-8")
    cells, repeats, rest = parsed(page)
    assert rendered(cells, programs(), repeats, rest) == page


def test_cells_come_back_from_the_page() -> None:
    program = Program("net", "nothing", lambda strategy: Trained([], [], []), {"tpu": "no"})
    cells = {("net", MIRRORED): Cell.of(Outcome("", "", 9000, 1 / 3, (), {}, True, 2.0, 5.0))}
    page = rendered(cells, {"net": program}, "3", "\n## By hand\n")
    assert "| `net` | nothing | 33 % | 0 | 2 of 5 | - | - | - |" in page
    assert parsed(page) == (cells, "3", "\n## By hand\n")


def test_a_smaller_share_or_a_larger_difference_is_not_what_the_page_says() -> None:
    key = ("net", MIRRORED)
    said = {key: Cell("97 %", "2e-07", "1 of 2")}
    assert differences(said, {key: Cell("97 %", "0", "2 of 3")}) == []
    assert differences(said, {key: Cell("97 %", "3e-07", "")}) != []
    assert differences(said, {key: Cell("96 %", "0", "")}) != []
    assert differences(said, {("other", "tpu"): Cell("1 %", "0", "")}) != []

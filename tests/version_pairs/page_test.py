"""docs/versions.md has a row for each supported TensorFlow, and in no row did anything fail."""

from __future__ import annotations

import re

import pytest

from tests.project.imports import ROOT
from tf_wu_shard.tensorflow_private.required_names import SUPPORTED
from tools.version_pairs.environments import SAMPLE
from tools.version_pairs.interpreters import OLDEST
from tools.version_pairs.table import AGREES, NO_WHEELS, PACKAGES, Row, parsed
from tools.versions import PAGE, page_of

FIRST, LAST = SUPPORTED[0], SUPPORTED[-1]

AFTER_LAST = f"2.{int(LAST.partition('.')[2]) + 1}"

INSTALLED = Row("2.18.1", "3.9.2", ("1",) * len(PACKAGES), "10 passed, 1 skipped", AGREES)


def rows() -> list[Row]:
    return [*parsed(PAGE.read_text(encoding="utf-8")).values()]


def test_the_page_is_as_it_would_be_written() -> None:
    assert page_of(rows()) == PAGE.read_text(encoding="utf-8")


def test_every_pair_of_a_supported_tensorflow_is_on_the_page_and_none_failed() -> None:
    assert [row for row in rows() if not row.is_well] == []
    pythons = {row.pair[1] for row in rows()}
    assert {row.pair for row in rows()} == {(t, p) for t in SUPPORTED for p in pythons}
    assert ".".join(map(str, OLDEST)) in pythons


def test_the_demo_ran_on_the_oldest_and_the_newest_tensorflow() -> None:
    assert [row.pair[0] for row in rows() if row.demo == AGREES] == [FIRST, LAST]


def test_rows_are_ordered_by_number_and_read_as_they_were_written() -> None:
    other = Row("2.18", "3.10.1", sample=f"{NO_WHEELS}tensorflow")
    page = page_of([other, INSTALLED])
    assert [*parsed(page).values()] == [INSTALLED, other]


@pytest.mark.parametrize(
    ("sample", "demo", "well"),
    [
        ("10 passed", AGREES, True),
        ("10 passed, 1 skipped", "-", True),
        (f"{NO_WHEELS}tensorflow", "-", True),
        ("9 passed, 1 failed", AGREES, False),
        ("ended with status 2", "-", False),
        ("10 passed", "ended with status 1", False),
    ],
)
def test_a_row_is_well_when_nothing_failed(sample: str, demo: str, well: bool) -> None:
    assert Row("2.18.1", "3.11.1", (), sample, demo).is_well == well


def test_the_sample_is_of_tests_that_there_are() -> None:
    assert [test for test in SAMPLE if not (ROOT / test).exists()] == []


def test_setup_asks_for_the_supported_releases() -> None:
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    ranges = re.findall(r'"(tensorflow|tensorflow-text|tf-keras|tensorboard)(>=[^"]*)"', text)
    assert len(ranges) == 4
    assert {given for _, given in ranges} == {f">={FIRST},<{AFTER_LAST}"}


def test_every_page_names_the_same_range() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = {page.name: " ".join(page.read_text(encoding="utf-8").split()) for page in pages}
    named = {
        name: re.findall(r"TensorFlow (2\.\d+) to (2\.\d+)", said) for name, said in text.items()
    }
    assert {pair for found in named.values() for pair in found} == {(FIRST, LAST)}
    assert all(named[page] for page in ("README.md", "getting_started.md", "versions.md"))

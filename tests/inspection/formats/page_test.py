"""Claims about the page: no name breaks it, no model makes it too large, nothing is left unsaid."""

from __future__ import annotations

import dataclasses
import html.parser
import re

from tests.inspection.made_answers import HOSTILE, answer
from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.formats.page import as_html, page
from tf_wu_shard.report.report import Bytes


class _Read(html.parser.HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_no_name_becomes_markup() -> None:
    plain, hostile = (_Read(as_html(answer(name, variables=2))) for name in ("w", HOSTILE))
    # A name may break after each of its slashes.
    assert [t for t, _ in hostile.tags if t != "wbr"] == [t for t, _ in plain.tags if t != "wbr"]
    assert not any(name.startswith("on") for _, attrs in hostile.tags for name in attrs)
    assert "alert(1)" in hostile.text


def test_no_name_turns_text_around_or_moves_a_cursor() -> None:
    text = as_html(answer(HOSTILE, variables=2))
    assert all(c.isprintable() or c == "\n" for c in text)
    assert r"\x1b[2J" in text and r"\u202e" in text and r"\ud800" in text
    text.encode("utf-8")


def test_nothing_is_loaded_and_no_other_script_may_run() -> None:
    text = as_html(answer())
    assert not re.search(r"(\bsrc=|href|url\(|@import|https?:)", text)
    assert "default-src 'none'" in text and text.count("<script") == 1


def test_an_endless_name_is_cut() -> None:
    assert len(as_html(answer("x" * 10**6))) < 200_000


def test_a_page_of_5000_variables_stays_small_and_says_what_it_leaves_out() -> None:
    text = as_html(answer("layer/kernel", variables=5000))
    assert len(text) < 1_500_000
    assert "The 1,000 largest of 5,000; --format json has all." in text
    assert "The 1,000 first of 2,500; --format json has all." in text


def test_a_page_of_many_functions_stays_small_and_says_so() -> None:
    text = as_html(answer("layer/kernel", variables=500, functions=60))
    assert len(text) < 3_000_000 and "52 more functions train" in text


def test_a_model_that_does_not_train_has_its_verdict() -> None:
    inspection = Inspection("GraphDef", 3, (FunctionAnswer("f", False, "0 variable writes"),), ())
    (section,) = page(inspection).sections
    assert section.verdict == "0 variable writes, nothing to shard" and section.good is None


def test_what_was_only_partly_read_says_so_first() -> None:
    first, *_ = page(answer()).sections
    assert first.title == "Only partly read" and not first.good


def test_each_refusal_has_its_op_its_line_and_what_would_lift_it() -> None:
    (_, chapter, _) = page(answer("w", variables=2)).sections
    left = chapter.tables[0]
    assert left.columns == ("Variable", "Why", "Found at", "What would lift it")
    texts = [cell if isinstance(cell, str) else cell.text for cell in left.rows[0]]
    assert texts == [
        "w1",
        "no rule for w",
        "w, made by w",
        "an update without w",
    ]


def test_a_curve_says_from_where_on_nothing_is_cut() -> None:
    inspection = answer()
    (function,) = inspection.functions
    whole = Bytes(8192, 8192)
    memory = tuple(
        dataclasses.replace(row, slots=whole) if row.replicas >= 256 else row
        for row in function.memory
    )
    changed = dataclasses.replace(function, memory=memory)
    chapter = page(dataclasses.replace(inspection, functions=(changed,))).sections[1]
    slots, weights = chapter.lines
    assert slots.note == "For 256 replicas and more the plan keeps all slots whole."
    assert weights.note == "The same with sharding: the plan keeps all weights whole."
    assert page(inspection).sections[1].lines[0].note == ""


def test_what_there_is_none_of_has_no_curve() -> None:
    inspection = answer()
    (function,) = inspection.functions
    memory = tuple(dataclasses.replace(row, slots=Bytes(0, 0)) for row in function.memory)
    changed = dataclasses.replace(function, memory=memory)
    (weights,) = page(dataclasses.replace(inspection, functions=(changed,))).sections[1].lines
    assert weights.title == "Bytes of weights on the fullest replica"

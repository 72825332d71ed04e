"""The answer on a terminal: no name out of a file moves a cursor."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from tests.inspection.made_answers import answer
from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff
from tf_wu_shard.inspection.formats.json_text import as_json
from tf_wu_shard.inspection.formats.markdown import as_markdown
from tf_wu_shard.inspection.formats.page import as_html
from tf_wu_shard.inspection.formats.text import as_all_lines, as_lines, printable

HOSTILE = "\x1b[2J<script>\r\x00\u202e\ud800"


def test_control_characters_are_escaped_in_text_and_json() -> None:
    inspection = Inspection(HOSTILE, 1, (FunctionAnswer(HOSTILE, True, HOSTILE),), (HOSTILE,))
    assert all(line.isprintable() for line in as_lines(inspection).splitlines())
    assert as_json(inspection).isascii()
    assert json.loads(as_json(inspection))["notes"] == [HOSTILE]


def with_diff(diff: GraphDiff) -> Inspection:
    made = answer()
    (found,) = made.functions
    return dataclasses.replace(made, functions=(dataclasses.replace(found, diff=diff),))


def test_a_diff_is_shown_with_what_changes_and_escaped() -> None:
    for show in (as_lines, as_all_lines):
        lines = show(with_diff(GraphDiff("a step", 2, 1, 0, (f"+{HOSTILE}",)))).splitlines()
        place = lines.index("  diff of a step: 2 ops added, 1 removed, 0 changed")
        assert lines[place + 1] == r"  +\x1b[2J<script>\r\x00\u202e\ud800"


@pytest.mark.parametrize("show", [as_lines, as_markdown, as_html])
def test_a_long_diff_is_cut_and_says_how_to_get_all(show: Callable[[Inspection], str]) -> None:
    lines = (*(f"+{number}" for number in range(100_000)), "+" + "x" * 1000)
    inspection = with_diff(GraphDiff("a step", len(lines), lines=lines))
    shown = show(inspection)
    assert len(shown) < 200_000 and " more lines of 100,001 left out: --diff --output" in shown
    whole = as_all_lines(inspection).splitlines()
    assert [line[2:] for line in whole if line.startswith("  +")] == [*lines]
    (told,) = json.loads(as_json(inspection))["diffs"]
    assert told["lines"] == [*lines] and told["added"] == 100_001


def test_a_diff_that_there_is_not_has_its_reason() -> None:
    said = as_lines(with_diff(GraphDiff("a step", refusal="it is torn")))
    assert "  no diff of a step: it is torn\n" in said


def test_an_endless_name_is_cut() -> None:
    assert len(printable("x" * 10**7)) == 400


def test_json_has_every_key_though_nothing_trains() -> None:
    answer = json.loads(as_json(Inspection("GraphDef", 0, (), ())))
    assert answer.keys() >= {"functions", "updates", "plan", "left_alone", "memory"}

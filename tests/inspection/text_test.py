"""The answer on a terminal: no name out of a file moves a cursor."""

from __future__ import annotations

import json

from tf_wu_shard.inspection.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.json_text import as_json
from tf_wu_shard.inspection.text import as_lines, printable

HOSTILE = "\x1b[2J<script>\r\x00\u202e\ud800"


def test_control_characters_are_escaped_in_text_and_json() -> None:
    inspection = Inspection(HOSTILE, 1, (FunctionAnswer(HOSTILE, True, HOSTILE),), (HOSTILE,))
    assert all(line.isprintable() for line in as_lines(inspection).splitlines())
    assert as_json(inspection).isascii()
    assert json.loads(as_json(inspection))["notes"] == [HOSTILE]


def test_an_endless_name_is_cut() -> None:
    assert len(printable("x" * 10**7)) == 400


def test_json_has_every_key_though_nothing_trains() -> None:
    answer = json.loads(as_json(Inspection("GraphDef", 0, (), ())))
    assert answer.keys() >= {"functions", "updates", "plan", "left_alone", "memory"}

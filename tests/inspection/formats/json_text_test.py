"""The JSON has the whole answer, and null for what is not known."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tests.inspection.made_answers import HOSTILE, answer
from tf_wu_shard.inspection.answers.answer import Inspection, RefusedAnswer
from tf_wu_shard.inspection.formats.json_text import as_json


def read(inspection: Inspection) -> Any:
    return json.loads(as_json(inspection))


def test_every_list_names_the_function_of_each_entry() -> None:
    found = read(answer("w", variables=4, functions=2))
    assert found["verdict"] == "2 functions train" and len(found["functions"]) == 2
    for key in ("updates", "plan", "left_alone", "memory", "pictures", "diffs"):
        assert {entry["function"] for entry in found[key]} == {"w"}, key
    assert len(found["updates"]) == 8 and len(found["left_alone"]) == 4


def test_a_plan_says_how_much_is_shared_and_what_its_bytes_count() -> None:
    (plan,) = read(answer("w", variables=4))["plan"]
    assert plan["share"] == 0.5 and plan["counted"]


def test_what_is_left_alone_has_its_line_and_null_for_what_nothing_tells() -> None:
    inspection = answer("w", variables=2)
    (function,) = inspection.functions
    untold = RefusedAnswer("w1", None, "", None, (), 0, slots_told=False, is_summed=False)
    refused = dataclasses.replace(function, refused=(untold,), updates=())
    unknown = dataclasses.replace(function, updates=())
    (told,) = read(inspection)["left_alone"]
    assert told["source_line"] == "w" and told["shape"] == [64, 32] and told["slots_told"]
    (left,) = read(dataclasses.replace(inspection, functions=(refused,)))["left_alone"]
    assert left["shape"] is None and left["bytes"] is None and left["slots_told"] is False
    (left,) = read(dataclasses.replace(inspection, functions=(unknown,)))["left_alone"]
    assert left["slots"] is None and left["slots_told"] is None


def test_a_function_of_which_nothing_is_planned_has_no_entry_but_its_own() -> None:
    inspection = answer("w")
    (function,) = inspection.functions
    alone = dataclasses.replace(
        function, report=None, updates=(), memory=(), picture=None, diff=None, trains=False
    )
    found = read(dataclasses.replace(inspection, functions=(alone,)))
    assert len(found["functions"]) == 1
    assert not any(found[key] for key in ("updates", "plan", "left_alone", "memory", "pictures"))


def test_any_name_comes_back_as_it_was_out_of_plain_ascii() -> None:
    inspection = answer(HOSTILE)
    assert as_json(inspection).isascii()
    assert read(inspection)["functions"][0]["name"] == HOSTILE

"""The answer as JSON, for programs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tf_wu_shard.inspection.answers.answer import FunctionAnswer, Inspection
from tf_wu_shard.inspection.answers.counted import what_is_counted

# What of a report says what would be done; the rest is about a graph that was rewritten.
_PLAN = (
    *("verdict", "num_replicas", "variables", "notes", "place"),
    *("elements", "slot_bytes", "held_back"),
    *("wire_bytes", "slot_bytes_per_replica", "weight_bytes_per_replica"),
)

# The answer about a weight that is left alone, null where it is not known.
_KNOWN = ("shape", "dtype", "bytes", "slots")


def as_json(inspection: Inspection) -> str:
    """The whole answer as a JSON object, in ASCII.

    Its keys are `form`, `verdict`, `how`, `functions`, `updates`, `plan`, `left_alone`, `memory`,
    `pictures`, `diffs` and `notes`; in the lists, `function` names the function.

    Args:
        inspection: The answer as data.
    """
    answer = {
        "form": inspection.form,
        "verdict": inspection.verdict,
        "how": inspection.how,
        "functions": [_function(function) for function in inspection.functions],
        "updates": _of_each(inspection, _updates),
        "plan": _of_each(inspection, _plan),
        "left_alone": _of_each(inspection, _left_alone),
        "memory": _of_each(inspection, _memory),
        "pictures": _of_each(inspection, _pictures),
        "diffs": _of_each(inspection, _diffs),
        "notes": list(inspection.notes),
    }
    return json.dumps(answer, indent=1)


def _function(function: FunctionAnswer) -> dict[str, Any]:
    fields = (
        *("name", "trains", "trained_by", "verdict", "writes", "reductions", "groups"),
        *("assumed", "refusal"),
    )
    return {field: getattr(function, field) for field in fields}


def _of_each(inspection: Inspection, rows_of: Any) -> list[dict[str, Any]]:
    return [
        {"function": function.name, **row}
        for function in inspection.functions
        for row in rows_of(function)
    ]


def _updates(function: FunctionAnswer) -> list[dict[str, Any]]:
    return [dataclasses.asdict(update) for update in function.updates]


def _plan(function: FunctionAnswer) -> list[dict[str, Any]]:
    if function.report is None:
        return []
    plan = dataclasses.asdict(function.report)
    counted = what_is_counted(function, function.report)
    share = {"share": function.report.share}
    return [{**{key: plan[key] for key in _PLAN}, **share, "counted": counted}]


def _left_alone(function: FunctionAnswer) -> list[dict[str, Any]]:
    report = function.report
    lines = dict(function.source_lines)
    refused = {answer.variable: dataclasses.asdict(answer) for answer in function.refused}
    updates = {update.variable: dataclasses.asdict(update) for update in function.updates}
    known = {
        name: {key: one.get(key) for key in _KNOWN} for name, one in (refused | updates).items()
    }
    return [
        {
            **dataclasses.asdict(left),
            "source_line": lines.get(left.where, ""),
            **known.get(left.name, dict.fromkeys(_KNOWN)),
            "slots_told": left.name in updates or refused.get(left.name, {}).get("slots_told"),
        }
        for left in ([] if report is None else report.left_alone)
    ]


def _memory(function: FunctionAnswer) -> list[dict[str, Any]]:
    return [dataclasses.asdict(row) for row in function.memory]


def _pictures(function: FunctionAnswer) -> list[dict[str, Any]]:
    return [] if function.picture is None else [dataclasses.asdict(function.picture)]


def _diffs(function: FunctionAnswer) -> list[dict[str, Any]]:
    return [] if function.diff is None else [dataclasses.asdict(function.diff)]

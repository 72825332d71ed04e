"""An estimate as a table: one row for each number of replicas, and as JSON."""

from __future__ import annotations

import dataclasses
import json

from tf_wu_shard.estimation.result import COLUMNS, Estimate, ReplicaEstimate
from tf_wu_shard.report.published import nothing_to_shard
from tf_wu_shard.report.report import Bytes
from tf_wu_shard.report.share import Share

SAME = Bytes(1000, 1000)


def row(replicas: int) -> ReplicaEstimate:
    report = dataclasses.replace(nothing_to_shard("f"), elements=Share(99, 100))
    slots = Bytes(8000, 8000 // replicas)
    return ReplicaEstimate(replicas, SAME, slots, SAME, SAME, report)


def estimate(*replicas: int) -> Estimate:
    rows = tuple(map(row, replicas))
    return Estimate("Adam", 2, 1234, 4000, 10, 8, rows, ("taken for granted",))


def test_each_number_of_replicas_has_a_row_with_what_changes() -> None:
    lines = str(estimate(2, 16)).splitlines()
    assert lines[0] == "Adam, 2 weights, 1,234 elements; on the fullest replica:"
    head = next(line for line in lines if line.split()[:1] == ["replicas"])
    assert all(column in head for column in COLUMNS)
    two, sixteen = lines[lines.index(head) + 1 :][:2]
    assert two.split()[:3] == ["2", "99", "%,"] and "8.00 kB -> 4.00 kB" in two
    assert "8.00 kB -> 500 B" in sixteen and "1.00 kB -> 1.00 kB" not in sixteen
    assert lines[-1] == "note: taken for granted"


def test_columns_stand_below_each_other() -> None:
    lines = str(estimate(2, 1024)).splitlines()
    head, *rows = [line for line in lines if line.startswith("  ") and "own gradients" not in line]
    place = head.index("slots")
    assert all(line[place:].startswith("8.00 kB") for line in rows[:2])


def test_json_has_every_field_and_bytes_as_numbers() -> None:
    found = json.loads(estimate(4).to_json())
    assert set(found) == {field.name for field in dataclasses.fields(Estimate)}
    assert found["rows"][0]["slots"] == {"unsharded": 8000, "sharded": 2000}

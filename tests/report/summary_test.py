"""The report says in numbers what the plan does."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tests.weight_update.plan.analyses import FLOAT16, Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.report.report import Bytes, Report
from tf_wu_shard.report.summary import summarize
from tf_wu_shard.weight_update.analysis.types import (
    Analysis,
    FunctionValue,
    MatrixFunction,
    Operand,
    OperandKind,
)
from tf_wu_shard.weight_update.plan.planner import make_plan


def report_of(
    analysis: Analysis, min_elements: int = 1, weights_in_shards: bool = False, **options: Any
) -> Report:
    plan = make_plan(
        analysis,
        ShardingOptions(**options),
        Preferences(min_elements, bucket_bytes=1, weights_in_shards=weights_in_shards),
    )
    emitted = {"reduce_scatter": 1, "all_gather": 1}
    return summarize("train", plan, emitted, "a place")


def test_the_verdict_tells_all_from_some_from_none() -> None:
    weights = [Weight("w", (64,)), Weight("b", (2,))]
    assert report_of(analysis_of(weights)).verdict == "sharded"
    assert report_of(analysis_of(weights), 8).verdict == "partly sharded"
    assert report_of(analysis_of(weights), 99).verdict == "nothing sharded"
    refused = analysis_of(weights, refused=[Weight("r", (64,))])
    assert report_of(refused).verdict == "partly sharded"


def test_slot_bytes_are_those_of_the_fullest_replica() -> None:
    analysis = analysis_of([Weight("w", (64,), ("m", "v")), Weight("b", (2,), ("n",))])
    # m and v: 64 floats each, 16 a replica; n stays whole.
    assert report_of(analysis, 8).slot_bytes_per_replica == Bytes(2 * 256 + 8, 2 * 64 + 8)


def test_what_owners_hold_counts_where_it_is() -> None:
    weights = [Weight("a", (8, 8), ("m",)), Weight("b", (8, 4), ("n",)), Weight("c", (64,), ("o",))]
    analysis = analysis_of(weights)
    updates = [dataclasses.replace(u, whole=u.name in ("a", "b")) for u in analysis.updates]
    report = report_of(dataclasses.replace(analysis, updates=tuple(updates)))
    assert [v.layout for v in report.variables] == [
        *("owner replica 0", "owner replica 1", "flat 64/4"),
    ]
    # 64 floats of m with replica 0, 32 of n with replica 1, 16 of o with each.
    assert report.slot_bytes_per_replica == Bytes(160 * 4, 80 * 4)
    assert report.wire_bytes.unsharded == report.wire_bytes.sharded


def test_what_matrix_functions_have_whole_is_said_and_counts_on_the_wire() -> None:
    value = FunctionValue(Operand(OperandKind.GRADIENT, index=0), 1, 64)
    own = MatrixFunction(0, 1, (value,), (), (value,), "program")
    other = dataclasses.replace(own, program="other")
    analysis = analysis_of([Weight(name, (8, 8), (f"m_{name}",)) for name in ("a", "b", "c")])
    before = report_of(analysis).wire_bytes.sharded
    updates = [
        dataclasses.replace(update, functions=functions)
        for update, functions in zip(analysis.updates, [(own,), (own, other), ()], strict=True)
    ]
    report = report_of(dataclasses.replace(analysis, updates=tuple(updates)))
    assert [v.whole for v in report.variables] == [
        *("by turns, 1 of 2 on each replica",),
        *("by turns, 1 of 2 on each replica; on every replica", ""),
    ]
    # 3/4 of 64 floats there and back by turns, and there for the lone one.
    assert report.wire_bytes.sharded == before + 3 * 192


def test_a_slot_counts_with_its_own_element_type() -> None:
    analysis = analysis_of([Weight("w", (128,), ("m",), slot_dtype=FLOAT16)])
    assert report_of(analysis).slot_bytes_per_replica == Bytes(256, 64)


def test_sharding_leaves_the_bytes_on_the_wire_as_they_were() -> None:
    report = report_of(analysis_of([Weight("w", (64,), ("m",))]))
    # An all-reduce of 256 bytes over 4 replicas brings 2 * 256 * 3 / 4 to each.
    assert report.wire_bytes == Bytes(384, 384)


def test_weights_that_stay_whole_take_the_room_they_took() -> None:
    report = report_of(analysis_of([Weight("w", (64,), ("m",)), Weight("b", (2,))]), 8)
    assert report.weight_bytes_per_replica == Bytes(256 + 8, 256 + 8)
    assert report.variables[0].gathered_in == ""


def test_weights_in_shards_take_a_shards_room_and_may_travel_narrower() -> None:
    analysis = analysis_of([Weight("w", (64,), ("m",)), Weight("b", (2,))])
    report = report_of(analysis, 8, weights_in_shards=True)
    assert report.weight_bytes_per_replica == Bytes(256 + 8, 64 + 8)
    assert report.variables[0].gathered_in == ""
    assert report.wire_bytes == Bytes(384 + 12, 384 + 12)
    narrow = report_of(analysis, 8, weights_in_shards=True, gather_dtype="bfloat16")
    assert narrow.variables[0].gathered_in == "bfloat16"
    # The sum of the gradients comes as before, the weight in half the bytes.
    assert narrow.wire_bytes == Bytes(384 + 12, 192 + 96 + 12)
    assert narrow.place == "a place"


def test_a_variable_left_alone_is_on_the_wire_as_before() -> None:
    report = report_of(analysis_of([Weight("w", (64,)), Weight("b", (4,))]), 8)
    assert report.wire_bytes == Bytes(384 + 24, 384 + 24)


def test_a_step_without_replicas_puts_nothing_on_the_wire() -> None:
    report = report_of(Analysis("f", 0, (), (), (), ()))
    assert report.wire_bytes == Bytes(0, 0)
    assert report.verdict == "nothing sharded"


def test_the_json_has_every_field_by_its_name() -> None:
    data = json.loads(
        report_of(analysis_of([Weight("w", (64,), ("m",)), Weight("b", (2,))]), 8).to_json()
    )
    assert set(data) == {
        *("function", "verdict", "num_replicas", "variables", "left_alone", "notes"),
        *("slot_bytes_per_replica", "weight_bytes_per_replica", "wire_bytes"),
        *("elements", "slot_bytes", "held_back", "share"),
        *("emitted", "place", "compile_update", "at_a_time", "changes", "pass_ms", "trace_ms"),
    }
    assert data["variables"] == [
        {
            "name": "w",
            "shape": [64],
            "dtype": "float32",
            "layout": "flat 64/4",
            "slots": ["m"],
            "bucket": 0,
            "padding": 0,
            "gathered_in": "",
            "whole": "",
            "compiled": "",
            "open_because": "",
        }
    ]
    (left,) = data["left_alone"]
    assert left.pop("cure").startswith("a lower min_elements")
    reason = "2 elements, below min_elements=8"
    assert left == {
        "name": "b",
        "reason": reason,
        "where": "",
        "elements": 2,
        "kind": "too_small",
        "detail": {"elements": 2, "limit": 8},
    }
    assert data["elements"] == {"sharded": 64, "total": 66}
    assert data["slot_bytes"] == {"sharded": 256, "total": 256}
    assert data["held_back"] is None and data["share"] == 64 / 66
    assert data["slot_bytes_per_replica"] == {"unsharded": 256, "sharded": 64}


def test_a_slot_that_the_step_reads_lives_in_shards_where_weights_do() -> None:
    analysis = analysis_of([Weight("w", (64,), ("m", "n"))])
    weight, read, slot = analysis.updates[0].variables
    variables = (
        *(dataclasses.replace(weight, trainable=True), dataclasses.replace(read, is_slot=False)),
        slot,
    )
    update = dataclasses.replace(analysis.updates[0], variables=variables)
    analysis = dataclasses.replace(analysis, updates=(update,))
    whole, cut = report_of(analysis), report_of(analysis, weights_in_shards=True)
    assert whole.slot_bytes_per_replica == Bytes(512, 256 + 64)
    assert cut.slot_bytes_per_replica == Bytes(512, 128)
    assert cut.weight_bytes_per_replica == Bytes(256, 64)
    assert cut.variables[0].slots == ("n", "m")
    (note,) = whole.notes
    assert note.startswith("slot m stays whole, put together in each step: the step also reads")
    assert "lifted by reading it in a function of its own" in note
    assert cut.notes == ()


def test_what_enters_several_matrix_functions_is_once_on_the_wire() -> None:
    value = FunctionValue(Operand(OperandKind.GRADIENT, index=0), 1, 64)
    functions = tuple(
        MatrixFunction(0, 1, (value,), (), (dataclasses.replace(value, size=16),), program)
        for program in ("left", "right")
    )
    analysis = analysis_of([Weight(name, (8, 8), (f"m_{name}",)) for name in ("a", "b")])
    before = report_of(analysis).wire_bytes.sharded
    updates = [dataclasses.replace(update, functions=functions) for update in analysis.updates]
    report = report_of(dataclasses.replace(analysis, updates=tuple(updates)))
    # 3/4 of 64 floats there, and of twice 16 back.
    assert report.wire_bytes.sharded == before + (64 + 2 * 16) * 3


def test_weights_that_are_updated_together_are_all_named() -> None:
    analysis = analysis_of([Weight("w", (64,), ("m",))])
    (update,) = analysis.updates
    (weight,) = update.weights
    weights = [dataclasses.replace(weight, key=key, trainable=True) for key in ("w", "tied")]
    average = dataclasses.replace(weight, key="average", trainable=False)
    update = dataclasses.replace(update, variables=(*weights, average, *update.slots))
    report = report_of(dataclasses.replace(analysis, updates=(update,)))
    assert [(v.name, v.slots, v.layout) for v in report.variables] == [
        ("w", ("m",), "flat 64/4"),
        ("tied", (), "flat 64/4"),
    ]

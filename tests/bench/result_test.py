"""The figures as JSON and as a table."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tf_wu_shard.bench.result import BeforeAfter, Result, StepTimes
from tf_wu_shard.bench.settings import Settings

RESULT = Result(
    settings=Settings(width=64, depth=2),
    parameter_bytes=1000,
    step_s=StepTimes(unsharded=2.0, sharded=1.0, no_update=0.5),
    first_step_s=StepTimes(unsharded=8.0, sharded=10.0, no_update=4.0),
    ratio_of_pairs=0.51,
    slot_bytes_per_replica=BeforeAfter(unsharded=8000, sharded=1000),
    rss_growth_bytes=BeforeAfter(unsharded=9_000_000, sharded=3_000_000),
    max_abs_weight_diff=1.5e-8,
    pass_ms=20.0,
    trace_ms=200.0,
    copy_bytes_per_s=40_000.0,
    bytes_moved=12_000,
)


def test_derived_figures_follow_from_the_measured_ones() -> None:
    assert RESULT.ratio == 0.5
    assert RESULT.limit_s == 0.5 + 12_000 / 40_000
    assert RESULT.over_limit == pytest.approx(1.0 / 0.8, rel=1e-12)
    assert RESULT.compilation_s == pytest.approx(
        {"unsharded": 8 - 0.18 - 2, "sharded": 10 - 0.2 - 1}
    )


def test_a_first_step_as_fast_as_others_compiles_nothing() -> None:
    quick = dataclasses.replace(RESULT, first_step_s=StepTimes(1.0, 1.0, 1.0))
    assert quick.compilation_s == {"unsharded": 0.0, "sharded": 0.0}


def test_json_has_every_figure_and_its_parts() -> None:
    found = json.loads(RESULT.to_json())
    assert found["step_s"] == {"unsharded": 2.0, "sharded": 1.0, "no_update": 0.5}
    assert found["first_step_s"] == {"unsharded": 8.0, "sharded": 10.0, "no_update": 4.0}
    assert found["ratio"] == 0.5
    assert found["slot_bytes_per_replica"] == {"unsharded": 8000, "sharded": 1000}
    assert found["rss_growth_bytes"] == {"unsharded": 9_000_000, "sharded": 3_000_000}
    assert found["max_abs_weight_diff"] == 1.5e-8
    assert (found["pass_ms"], found["trace_ms"]) == (20.0, 200.0)
    assert (found["copy_bytes_per_s"], found["bytes_moved"]) == (40_000.0, 12_000)
    assert (found["limit_s"], found["over_limit"]) == (RESULT.limit_s, RESULT.over_limit)


def test_the_table_shows_what_was_measured_and_the_verdicts() -> None:
    table = str(RESULT)
    assert table.startswith("mlp width 64 depth 2, 0.0 MB of weights, adam, mirrored, 8 replicas")
    lines = {line[:18].strip(): line[18:].split() for line in table.splitlines()}
    assert lines["step (median)"] == ["2.0000", "s", "1.0000", "s", "0.500"]
    assert lines["first step"] == ["8.0000", "s", "10.0000", "s", "1.250"]
    assert lines["memory growth"] == ["9.00", "MB", "3.00", "MB", "0.333"]
    assert lines["over the limit"] == ["1.250", "times"]
    assert lines["compilation"][:5] == ["8.800", "s,", "unsharded", "5.820", "s:"]


def test_an_optimizer_without_slots_has_no_share_of_them() -> None:
    none = dataclasses.replace(RESULT, slot_bytes_per_replica=BeforeAfter(0, 0))
    (row,) = (line for line in str(none).splitlines() if line.startswith("slots a replica"))
    assert row.split()[-1] == "-"

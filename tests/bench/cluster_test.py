"""Figures of launches, pair by pair."""

from __future__ import annotations

import dataclasses
import json

from tf_wu_shard.bench.cluster import ClusterResult, Launch
from tf_wu_shard.bench.settings import Settings

WHOLE = Launch(
    step_s=0.5,
    processor_s=2.0,
    loopback_bytes=3e6,
    memory_growth=400_000_000,
    slot_bytes=200_000_000,
    parameter_bytes=100_000_000,
    weights="ab",
)


def result(*sharded: Launch) -> ClusterResult:
    settings = Settings(strategy="workers", replicas=4, width=64)
    return ClusterResult(settings, (WHOLE,) * len(sharded), sharded)


def test_a_row_has_medians_and_the_range_of_the_ratios() -> None:
    found = result(*(dataclasses.replace(WHOLE, step_s=s) for s in (0.25, 0.6, 0.4)))
    assert found.ratios("step_s") == [0.5, 1.2, 0.8]
    (row,) = (line for line in str(found).splitlines() if line.startswith("step "))
    assert row.split() == ["step", "0.500", "s", "0.400", "s", "0.800", "0.500", "to", "1.200"]


def test_bytes_that_the_system_does_not_count_are_left_out() -> None:
    found = result(dataclasses.replace(WHOLE, loopback_bytes=None))
    assert found.ratios("loopback_bytes") == []
    (row,) = (line for line in str(found).splitlines() if line.startswith("loopback"))
    assert row.split() == ["loopback", "a", "step", "-", "-", "-"]


def test_an_optimizer_without_slots_has_no_ratio_of_them() -> None:
    without = dataclasses.replace(WHOLE, slot_bytes=0)
    found = ClusterResult(Settings(strategy="workers"), (without,), (without,))
    (row,) = (line for line in str(found).splitlines() if line.startswith("slots"))
    assert row.split()[-1] == "-"


def test_weights_that_differ_in_a_bit_are_told() -> None:
    assert "weights of all launches: equal to the bit" in str(result(WHOLE))
    other = result(dataclasses.replace(WHOLE, weights="cd"))
    assert "not equal to the bit" in str(other)
    assert json.loads(other.to_json())["sharded"][0]["weights"] == "cd"


def test_the_agreement_is_the_median_of_all_rehearsals_and_of_the_steps_own() -> None:
    launches = [
        dataclasses.replace(WHOLE, agreement_s=step, rehearsals_s=rehearsed)
        for step, rehearsed in ((0.02, (0.004, 0.006)), (0.04, (0.008, 0.1)), (0.03, (0.005,)))
    ]
    said = str(result(*launches))
    assert (
        "agreement 6.0 ms once all workers were there, median of 5 (largest 100.0 ms);"
        " on the step 30.0 ms, median of 3"
    ) in said
    assert json.loads(result(*launches).to_json())["sharded"][1]["rehearsals_s"] == [0.008, 0.1]


def test_without_a_vote_no_time_of_one_is_made_up() -> None:
    assert "agreement: none was needed" in str(result(WHOLE))

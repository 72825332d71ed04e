"""Replicas of a process that exchange by collectives; more of them in `training_scenarios_test`."""

from __future__ import annotations

import pytest

from tests.equivalence.own_process import answer_of

# A function that is traced again, steps in a loop.
SCENARIOS = ("retraced", "range_of_steps")

# Norms are added up shard by shard there.
_ADDED_UP_OTHERWISE = {"normed_three_times", "two_heads"}


def test_weights_and_slots_are_as_unsharded_ones() -> None:
    found = answer_of("scenarios_run", "training_scenarios@collective", *SCENARIOS)
    assert list(found) == list(SCENARIOS)
    for outcome in found.values():
        assert outcome["apart"] == [] and outcome["matrices_in_shards"] >= 4
        assert all(": sharded " in text for text in outcome["reports"])


def test_gradients_travel_by_the_strategys_collectives_and_nothing_else_does() -> None:
    unsharded, sharded, after, on_one_device = answer_of("collective_run")
    # What the strategy summed is cut before it is added up; weights are put together again.
    assert set(sharded["types"]) == {"CollectiveAllToAllV2", "CollectiveGatherV2"}
    assert sharded["instance_keys"] == sum(sharded["types"].values())
    assert [device for device, _ in sharded["group_keys"]] == ["CPU:0", "CPU:1"]
    assert sharded["losses"] == on_one_device["losses"] == sorted(sharded["losses"], reverse=True)
    # Other strategies of these devices count their collectives from the same number on.
    assert set(unsharded["types"]) == set(after["types"]) == {"CollectiveReduceV2"}
    assert sharded["losses"] == unsharded["losses"] == after["losses"]
    # A sum that is no collective shows no group.
    assert on_one_device["types"] == {} and "nothing sharded" in on_one_device["report"]
    assert "its sums over replicas are no collectives" in on_one_device["report"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        *("matrix_scenarios", "repeated_scenarios", "row_scenarios"),
        *("tf_keras_scenarios", "training_scenarios"),
    ],
)
def test_the_step_of_gpus_trains_as_the_unsharded_one_where_kernels_stand_in_for_nccls(
    module: str,
) -> None:
    for name, outcome in answer_of("scenarios_run", f"{module}@nccl").items():
        # Two sums of a thousand squares in another order, of numbers around 1.
        assert outcome["by"] <= (1e-6 if name in _ADDED_UP_OTHERWISE else 0.0), name
        assert outcome["in_shards"] or name == "twice_by_sgd", name
        assert not any("failed" in text for text in outcome["reports"]), name

"""How many replicas compute their gradients at a time."""

from __future__ import annotations

import dataclasses

import pytest

from tests.weight_update.plan.analyses import Weight, analysis_of
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.weight_update.plan.planner import make_plan
from tf_wu_shard.weight_update.plan.staggering import replicas_at_a_time
from tf_wu_shard.weight_update.plan.types import VariablePlan

STAGGERED = Preferences(1, 1, staggered_bytes=400)


def variables(device: str) -> tuple[VariablePlan, ...]:
    """The plan of an update of 100 float32, on such a device."""
    analysis = analysis_of([Weight("w", (100,), ("m",))])
    updates = [dataclasses.replace(u, devices=(device,) * 4) for u in analysis.updates]
    analysis = dataclasses.replace(analysis, updates=tuple(updates))
    return make_plan(analysis, ShardingOptions(), Preferences(1, 1)).variables


@pytest.mark.parametrize(
    ("cores", "replicas", "at_a_time"),
    [(1, 4, 2), (2, 4, 3), (3, 4, 0), (64, 4, 0), (2, 8, 3), (6, 8, 7), (7, 8, 0), (1, 1, 0)],
)
def test_one_replica_more_than_cores_computes_at_a_time(
    cores: int, replicas: int, at_a_time: int
) -> None:
    shared = variables("/device:CPU:1")
    assert replicas_at_a_time(shared, replicas, STAGGERED, cores) == at_a_time


@pytest.mark.parametrize(
    ("device", "limit", "at_a_time"),
    [
        ("/device:CPU:1", 400, 3),
        ("/device:CPU:1", 401, 0),
        ("/device:CPU:1", None, 0),
        ("/device:GPU:1", 400, 0),
    ],
)
def test_small_gradients_and_other_devices_are_not_held_back(
    device: str, limit: int | None, at_a_time: int
) -> None:
    preferences = dataclasses.replace(STAGGERED, staggered_bytes=limit)
    assert replicas_at_a_time(variables(device), 4, preferences, 2) == at_a_time

"""A sharding is planned as its replicas prefer, rewritten where there is anything, and reported."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tests.weight_update.plan.analyses import Weight, analysis_of
from tests.weight_update.rewrite.raw_steps import Copy, RawStep, dense_step
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import WuShardError
from tf_wu_shard.preferences import Preferences
from tf_wu_shard.refusals import Storage
from tf_wu_shard.replicas import of_workers
from tf_wu_shard.weight_update.analysis.types import Analysis
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints
from tf_wu_shard.weight_update.sharding import Sharding, plan_sharding

SHAPES = {"w": (5, 4), "m": (5, 4)}


def planned(
    analysis: Analysis,
    constraints: StorageConstraints | None = None,
    *,
    min_elements: int = 10,
) -> Sharding:
    """The sharding of replicas that leave what is smaller alone."""
    dialect: Any = SimpleNamespace(
        preferences=Preferences(min_elements, bucket_bytes=1), replicas=of_workers(["d0"], 4)
    )
    return plan_sharding(analysis, dialect, ShardingOptions(), constraints or StorageConstraints())


def momentum(copy: Copy) -> None:
    put = copy.write("AssignAdd", "m", copy.total, "put")
    copy.write("AssignSub", "w", copy.read("m", "moved", after=[put]), "step")


def sgd(copy: Copy) -> None:
    copy.write("AssignSub", "w", tf.negative(copy.total), "step")


def sharding_of(step: RawStep) -> Sharding:
    options = ShardingOptions(min_elements=1)
    return plan_sharding(step.analysis, step.emission.dialect, options, StorageConstraints())


def test_replicas_prefer_and_the_storage_forbids() -> None:
    analysis = analysis_of([Weight("w", (30,), ("m",)), Weight("small", (9,)), Weight("x", (40,))])
    assert [v.variable for v in planned(analysis).plan.variables] == ["w", "x"]
    assert [v.variable for v in planned(analysis, min_elements=40).plan.variables] == ["x"]
    reason = Storage.USED_BY_CALLEE.at()
    held = StorageConstraints().keeping("m", reason, update=True)
    plan = planned(analysis, held).plan
    assert [v.variable for v in plan.variables] == ["x"]
    assert {left.variable: left.refusal.kind for left in plan.left_alone}["w"] is reason.kind


def test_what_is_left_alone_is_not_rewritten_and_yet_reported() -> None:
    found = planned(analysis_of([Weight("small", (9,))]))
    none: Any = None
    assert found.rewritten(none) is found
    assert (found.result, found.shard_inputs, found.concerns) == (None, (), True)
    report = found.report("step")
    assert (report.function, report.verdict) == ("step", "nothing sharded")
    assert [left.name for left in report.left_alone] == ["small"]
    assert report.place == "4 workers, a replica each"


def test_a_graph_without_updates_is_no_concern() -> None:
    assert not planned(analysis_of([])).concerns
    assert planned(analysis_of([], refused=[Weight("r", (30,))])).concerns


def test_what_is_rewritten_has_new_inputs_for_the_slots_and_reports_what_travels() -> None:
    step = dense_step(momentum, SHAPES)
    planning = sharding_of(step)
    assert planning.result is None and planning.shard_inputs == ()
    assert planning.report("step").emitted == {}
    found = planning.rewritten(step.view)
    assert [(i.slot, i.replica) for i in found.shard_inputs] == [("m", 0), ("m", 1)]
    report = found.report("step")
    assert report.emitted == {"reduce_scatter": 1, "all_gather": 1}
    assert [v.slots for v in report.variables] == [("m",)] and report.verdict == "sharded"
    assert found.plan is planning.plan


def test_why_xla_compiles_nothing_of_an_update_is_in_the_report() -> None:
    step = dense_step(momentum, SHAPES)
    options = ShardingOptions(min_elements=1, compile_update="exact")
    dialect = step.emission.dialect
    planning = plan_sharding(step.analysis, dialect, options, StorageConstraints())
    found = planning.rewritten(step.view)
    assert found.result is not None
    assert [v.open_because for v in found.report("step").variables] == [""]
    why = Storage.USED_BY_CALLEE.at()
    left_open = dataclasses.replace(found.result, left_open={"w": why})
    (variable,) = dataclasses.replace(found, result=left_open).report("step").variables
    assert variable.open_because == why.reason


def test_a_plan_fits_no_other_graph() -> None:
    with pytest.raises(WuShardError):
        sharding_of(dense_step(momentum, SHAPES)).rewritten(dense_step(sgd, SHAPES).view)

"""A step is planned for any number of replicas, on TPUs with every gradient dense."""

from __future__ import annotations

import dataclasses

from tests.weight_update.analysis.steps import MOMENTUM, analysis_of
from tf_wu_shard import refusals
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.grounds.dialect import Gathered
from tf_wu_shard.grounds.tpu.torus import one_group
from tf_wu_shard.inspection.one_device.what_if import ReplicasInProcess, ReplicasOnTpu
from tf_wu_shard.inspection.steps.planning import planned
from tf_wu_shard.weight_update.analysis.types import Analysis, RefusedUpdate
from tf_wu_shard.weight_update.plan.constraints import StorageConstraints

SMALL = ShardingOptions(min_elements=1)


def sparse(analysis: Analysis) -> Analysis:
    """The same, its gradient being the values of one that names rows, the rows beside it."""
    (values,) = analysis.reductions
    parts = [
        dataclasses.replace(values, key=key, gathered=gathered)
        for key, gathered in ((0, Gathered.VALUES), (1, Gathered.ROWS))
    ]
    update = dataclasses.replace(analysis.updates[0], reductions=(0, 1))
    return dataclasses.replace(analysis, reductions=tuple(parts), updates=(update,))


def test_a_step_is_planned_for_other_replicas_than_it_was_traced_for() -> None:
    for replicas in (2, 4, 8):
        sharding = planned(analysis_of(MOMENTUM), ReplicasInProcess(replicas), replicas, SMALL)
        assert sharding.plan.num_replicas == replicas
        (weight,) = sharding.plan.variables
        assert str(weight.layout).startswith(f"flat 4/{replicas} ")


def test_an_update_that_must_stay_whole_is_left_alone_with_the_reason() -> None:
    why = refusals.Storage.CAPTURED.at(function="f")
    plan = planned(
        analysis_of(MOMENTUM), ReplicasInProcess(2), 2, SMALL, StorageConstraints({"m": why})
    ).plan
    assert plan.variables == ()
    (left,) = plan.left_alone
    assert left.refusal.kind is why.kind


def test_on_tpus_a_sparse_gradient_is_summed_as_a_tensor_of_the_weights_size() -> None:
    given = sparse(analysis_of(MOMENTUM))
    (update,) = planned(given, ReplicasOnTpu(one_group(2)), 2, SMALL).plan.updates
    assert update.reductions == (0,) and update.body == ()
    (there, _) = planned(given, ReplicasOnTpu(one_group(2)), 2, SMALL).plan.reductions
    assert there.gathered is None and there.size == 4
    (here, _) = planned(given, ReplicasInProcess(2), 2, SMALL).plan.reductions
    assert here.gathered is Gathered.VALUES


def test_a_sparse_gradient_that_is_refused_here_is_refused_on_tpus_for_being_dense() -> None:
    found = sparse(analysis_of(MOMENTUM))
    why = refusals.Rules.NO_RULE.at("odd", op_type="Cumsum")
    given = dataclasses.replace(
        found,
        updates=(),
        refused=(
            RefusedUpdate("w", (0, 1), why),
            RefusedUpdate("other", (), why),
        ),
    )
    on_tpus = planned(given, ReplicasOnTpu(one_group(2)), 2, SMALL).plan.left_alone
    assert [r.refusal for r in on_tpus] == [refusals.Inspection.DENSE_ON_TPUS.at("odd"), why]
    here = planned(given, ReplicasInProcess(2), 2, SMALL).plan.left_alone
    assert [r.refusal for r in here] == [why, why]

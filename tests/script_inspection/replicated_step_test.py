"""A step of several replicas is looked at as the pass would see it, and stays as it was traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.graph.tracing import momentum_step, traced, weight_and_slot
from tf_wu_shard import captures
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.inspection.steps.grounds import Question
from tf_wu_shard.script_inspection.replicated_step import (
    ReplicatedStep,
    answers,
    count_variables,
    is_replicated,
    replicated_step,
)
from tf_wu_shard.storage.sharded_slot import sharded_slot_of
from tf_wu_shard.tensorflow_private.distributed_variables import original_handle

LARGE, SMALL = (64, 32), (5, 7)


class Training:
    """A weight and its momentum on two replicas, and the graph of a step."""

    def __init__(self, strategy: tf.distribute.Strategy, shape: tuple[int, ...]) -> None:
        self.weight, self.slot = weight_and_slot(strategy, shape)
        self.graph: Any = traced(strategy, momentum_step(self.weight, self.slot))

    def looked_at(self) -> ReplicatedStep:
        found = replicated_step(self.graph, ShardingOptions(), {})
        assert found is not None
        return found


Trainings = Callable[[tuple[int, ...]], Training]


@pytest.fixture
def training(
    strategy_of: Callable[[int], tf.distribute.MirroredStrategy], monkeypatch: pytest.MonkeyPatch
) -> Trainings:
    """From the shape of a weight to its training."""
    # Where scripts are looked at, no function is noted that was traced before; and which slots
    # optimizers list is found among all objects of the process.
    monkeypatch.setattr(captures, "record", lambda graph, handles: None)
    monkeypatch.setattr(f"{replicated_step.__module__}.slot_relations", lambda handles: ())
    return lambda shape: Training(strategy_of(2), shape)


def test_what_would_be_sharded_is_planned_and_nothing_live_is_changed(
    training: Trainings,
) -> None:
    own = training(LARGE)
    before = own.graph.as_graph_def().SerializeToString(deterministic=True)
    step = own.looked_at()
    assert step.is_planned and step.cluster is None and count_variables(step) == 2
    assert step.outcome.report is not None
    assert [variable.name for variable in step.outcome.report.variables] == ["weight"]
    assert own.graph.as_graph_def().SerializeToString(deterministic=True) == before
    assert sharded_slot_of(original_handle(own.slot.values[0])) is None


def test_the_answer_is_for_the_steps_own_replicas_and_compares_the_graphs_where_asked(
    training: Trainings,
) -> None:
    step = training(LARGE).looked_at()
    (plain,) = answers(step, Question())
    assert plain.trains and plain.name == step.title and plain.diff is None
    (compared,) = answers(step, Question(diff=True))
    assert compared.diff is not None
    assert compared.diff.about == "the step as it was traced, for 2 replicas, and as rewritten"


def test_an_update_that_costs_less_than_sharding_it_is_looked_at_and_not_planned(
    training: Trainings,
) -> None:
    step = training(SMALL).looked_at()
    assert not step.is_planned
    (answer,) = answers(step, Question(diff=True))
    assert answer.trains and answer.diff is not None
    assert answer.diff.about.endswith("nothing is sharded, so that nothing changes")


def test_a_function_that_trains_nothing_on_replicas_is_no_step(
    training: Trainings,
) -> None:
    own = training(SMALL)
    alone = tf.Variable(tf.ones(SMALL))
    reads = tf.function(lambda: own.weight.values[0] * 2.0).get_concrete_function().graph
    writes = tf.function(lambda: alone.assign_add(alone * 2.0)).get_concrete_function().graph
    for graph, on_replicas in ((own.graph, True), (reads, True), (writes, False)):
        assert is_replicated(graph) is on_replicas
    for graph in (reads, writes):
        assert replicated_step(graph, ShardingOptions(), {}) is None

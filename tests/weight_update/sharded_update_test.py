"""The pass hands over what the stages make of a step, unless another worker did not come so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import tensorflow as tf

from tf_wu_shard.config import FLAG, ShardingOptions
from tf_wu_shard.refusals import Refusal, Topology
from tf_wu_shard.report.published import nothing_sharded
from tf_wu_shard.report.report import ShardedVariable
from tf_wu_shard.step.capture import Captured, capture
from tf_wu_shard.step.step import Step
from tf_wu_shard.storage import copies_apart
from tf_wu_shard.weight_update import all_workers, sharded_update
from tf_wu_shard.weight_update.nested_updates import NestedUpdates
from tf_wu_shard.weight_update.sharded_update import ShardedUpdate
from tf_wu_shard.weight_update.stages import Outcome

OTHERS = Topology.NOT_ON_ALL_WORKERS.at(said="worker 1 refused")
REPORT = nothing_sharded("step", Topology.NO_GRADIENT_SUMMED.at(), ("w",))


class Variable:
    """A variable, of which nothing but itself is known."""


@pytest.fixture(scope="module")
def step() -> Step:
    """A function that uses no variables."""
    traced = tf.function(lambda x: tf.square(x), autograph=False)
    graph = traced.get_concrete_function(tf.TensorSpec((3,))).graph
    none: Any = None
    return Step(graph, capture(graph), none)


@pytest.fixture
def other(step: Step) -> Step:
    """What might have been made of it."""
    shared = ShardedVariable("w", (3,), "float32", "flat 3/2", (), bucket=0, padding=0)
    report = dataclasses.replace(REPORT, variables=(shared,), left_alone=())
    return dataclasses.replace(step, is_changed=True, reports=(report,))


def test_it_goes_by_the_flag_and_its_options() -> None:
    assert ShardedUpdate.flag == FLAG
    options = ShardingOptions(min_elements=7)
    assert ShardedUpdate.parse(options) is options and ShardedUpdate.parse(False) is None


def test_a_step_that_uses_no_shards_stays_as_it_is_while_the_flag_is_off(step: Step) -> None:
    found = ShardedUpdate().apply(step, None)
    assert found == dataclasses.replace(step, reports=(), reported=frozenset())
    assert not found.is_changed and ShardedUpdate().redirected(step) is step


def test_what_the_stages_say_is_said_of_the_step(
    monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    variable = Variable()
    captured = Captured(step.captured.view, {"w": variable})
    outcome = Outcome(NestedUpdates(captured), report=REPORT)
    monkeypatch.setattr(sharded_update, "run_stages", lambda *given: outcome)
    monkeypatch.setattr(sharded_update, "handed_over", lambda step, *given: step)
    found = ShardedUpdate().apply(step, ShardingOptions())
    assert found.reports == (REPORT,) and found.reported == {id(variable)}


@pytest.mark.parametrize("refusal", [None, OTHERS])
def test_a_step_is_used_where_all_workers_have_made_theirs(
    monkeypatch: pytest.MonkeyPatch, step: Step, other: Step, refusal: Refusal | None
) -> None:
    monkeypatch.setattr(all_workers, "confirm", lambda captured: refusal)
    found = ShardedUpdate().confirmed(step, other)
    if refusal is None:
        assert found is other
        return
    assert not found.is_changed
    (report,) = found.reports
    assert report.verdict == "nothing sharded" and not report.variables
    assert [(left.name, left.reason) for left in report.left_alone] == [("w", refusal.reason)]


def test_what_was_reported_is_known_to_later_steps_and_noted_on_the_weights(
    monkeypatch: pytest.MonkeyPatch, step: Step, other: Step
) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(
        copies_apart, "note_update", lambda name, found: noted.append((name, [*found]))
    )
    variable = Variable()
    captured = Captured(step.captured.view, {"w": variable})
    own = ShardedUpdate()
    reported = dataclasses.replace(other, captured=captured, reported=frozenset({5}))
    own.remember(step.graph, reported)
    # What the function no longer has is noted on nothing.
    own.remember(step.graph, dataclasses.replace(reported, captured=step.captured))
    assert noted == [("step", [variable]), ("step", [])]
    seen: list[Mapping[Any, Any]] = []

    def run(step: Step, options: Any, known: Mapping[Any, Any]) -> Outcome:
        seen.append(dict(known))
        return Outcome(NestedUpdates(step.captured))

    monkeypatch.setattr(sharded_update, "run_stages", run)
    own.apply(step, None)
    assert seen == [{step.graph: frozenset({5})}]

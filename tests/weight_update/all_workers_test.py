"""What workers vote on is short, alike in every process, and asked once of each plan."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.graph.tracing import traced, weight_and_slot
from tests.weight_update.rewrite.stages import Stages, keras_step, run_stages
from tf_wu_shard.config import ShardingOptions
from tf_wu_shard.errors import StorageError
from tf_wu_shard.refusals import Plan
from tf_wu_shard.storage import captured_slots
from tf_wu_shard.weight_update import all_workers
from tf_wu_shard.weight_update.all_workers import _digest
from tf_wu_shard.weight_update.plan.types import LeftAlone
from tf_wu_shard.workers.agreement import Decision, Proposal

Strategies = Callable[[int], tf.distribute.MirroredStrategy]

SHAPES = ((5, 40), (40,))


def adam(beta: float = 0.9) -> Callable[[], Any]:
    return lambda: keras.optimizers.Adam(0.1, beta_1=beta, name="adam")


def digest_of(
    strategy: tf.distribute.Strategy,
    optimizer: Callable[[], Any],
    shapes: tuple[tuple[int, ...], ...] = SHAPES,
    **options: Any,
) -> str:
    graph = keras_step(strategy, optimizer, shapes)
    stages = run_stages(graph, ShardingOptions(min_elements=1, **options))
    assert len(stages.plan.variables) == len(shapes)
    return _digest(stages.captured, stages.plan, ShardingOptions())


def test_numbers_in_names_have_no_part_in_the_digest(strategy_of: Strategies) -> None:
    """TensorFlow counts them in each process, whatever else was made there."""
    strategy = strategy_of(2)
    one, other = (run_stages(keras_step(strategy, adam(), SHAPES, first)) for first in (0, 7))
    assert {ref.key for ref in one.view.variables.values()}.isdisjoint(
        update.name for update in other.plan.updates
    )
    digest = _digest(one.captured, one.plan, ShardingOptions())
    assert digest == _digest(other.captured, other.plan, ShardingOptions())
    assert len(digest) == 16


def test_another_plan_constant_or_shape_has_another_digest(strategy_of: Strategies) -> None:
    strategy = strategy_of(2)
    found = {
        digest_of(strategy, adam()),
        digest_of(strategy, adam(0.8)),
        digest_of(strategy, adam(), bucket_bytes=1),
        digest_of(strategy, adam(), ((5, 40), (41,))),
        digest_of(strategy, lambda: keras.optimizers.Lion(name="adam")),
        digest_of(strategy_of(3), adam()),
    }
    assert len(found) == 6


def test_what_gradients_travel_in_and_weights_that_are_whole_in_between_are_in_the_digest(
    stages: Stages,
) -> None:
    captured, plan = stages.captured, stages.plan
    looked_at = [
        dataclasses.replace(
            v,
            update=dataclasses.replace(
                v.update,
                variables=tuple(
                    dataclasses.replace(w, versions=(1, 2)) if w.versions else w
                    for w in v.update.variables
                ),
            ),
        )
        for v in plan.variables
    ]
    alike = dataclasses.replace(plan, variables=(looked_at[0], *plan.variables[1:]))
    other = dataclasses.replace(plan, variables=(plan.variables[0], *looked_at[1:]))
    found = {_digest(captured, one, ShardingOptions()) for one in (plan, alike, other)}
    found |= {
        _digest(captured, plan, ShardingOptions(wire_dtype="bfloat16")),
        _digest(captured, plan, ShardingOptions(dialect="collective")),
    }
    assert len(found) == 5


@pytest.mark.parametrize(("factor", "beside", "alike"), [(0.5, 3.0, True), (0.25, 1.0, False)])
def test_what_an_identity_passes_on_beside_a_gradient_is_not_in_the_digest(
    strategy_of: Strategies, factor: float, beside: float, alike: bool
) -> None:
    """A gradient that is reduced stands beside the worker's own, of its own number, say."""
    strategy = strategy_of(2)

    def digest(factor: float, beside: float) -> str:
        weight, _ = weight_and_slot(strategy)

        def replica(number: tf.Tensor) -> None:
            del number
            total = tf.distribute.get_replica_context().all_reduce("SUM", weight * 2.0)
            scaled, _ = tf.identity_n([total * factor, weight * beside])
            weight.assign_sub(tf.tanh(scaled))

        stages = run_stages(traced(strategy, replica), ShardingOptions(min_elements=1))
        assert len(stages.plan.variables) == 1
        return _digest(stages.captured, stages.plan, ShardingOptions())

    assert (digest(0.5, 1.0) == digest(factor, beside)) is alike


class Others:
    """The other workers, which say the same each time that they are asked."""

    def __init__(self, *, agree: bool) -> None:
        self.asked: list[Proposal] = []
        self._agree = agree

    def begin(
        self, about: Any, proposal: Proposal, seconds: float, once_made: Callable[[], None]
    ) -> Decision:
        self.asked.append(proposal)
        if self._agree and proposal.refusal is None:
            once_made()
            return Decision(True, {0: "agreed", 1: "agreed"})
        return Decision(False, {0: "agreed", 1: "refused: it has other slots"})


@pytest.fixture
def stages(strategy_of: Strategies) -> Stages:
    return run_stages(keras_step(strategy_of(2), adam(), SHAPES), ShardingOptions(min_elements=1))


def asked(
    monkeypatch: pytest.MonkeyPatch, others: Others, stages: Stages, times: int, **options: Any
) -> list[str]:
    """What keeps the worker from sharding each time that it traces a step anew; "" for nothing."""
    monkeypatch.setattr(all_workers, "workers_of", lambda captured: others)
    plan = stages.plan
    if "min_elements" in options:
        refused = Plan.TOO_SMALL.at(elements=1, limit=2)
        left = tuple(LeftAlone(v.update, refused) for v in plan.variables)
        plan = dataclasses.replace(plan, variables=(), left_alone=left)
    found = (
        all_workers.against_others(stages.captured, plan, ShardingOptions(**options))
        for _ in range(times)
    )
    return [refusal.reason if refusal is not None else "" for refusal in found]


def test_others_who_refused_once_are_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, stages: Stages
) -> None:
    others = Others(agree=False)
    first, second = asked(monkeypatch, others, stages, 2)
    assert "worker 1 refused: it has other slots" in first
    assert second == first and len(others.asked) == 1
    # Other options are another question.
    asked(monkeypatch, others, stages, 1, bucket_bytes=7)
    assert len(others.asked) == 2


def test_a_step_of_which_this_worker_shards_nothing_is_told_to_the_others_once(
    monkeypatch: pytest.MonkeyPatch, stages: Stages
) -> None:
    others = Others(agree=True)
    assert asked(monkeypatch, others, stages, 3, min_elements=2) == ["", "", ""]
    (told,) = others.asked
    assert told.refusal == "1 elements, below min_elements=2"


def test_slots_that_are_whole_yet_take_another_vote_after_one_that_agreed(
    monkeypatch: pytest.MonkeyPatch, stages: Stages
) -> None:
    others = Others(agree=True)
    assert asked(monkeypatch, others, stages, 2) == ["", ""]
    assert len(others.asked) == 2


def test_a_function_that_writes_slots_in_shards_with_the_flag_off_takes_a_vote(
    monkeypatch: pytest.MonkeyPatch, stages: Stages
) -> None:
    slot = stages.plan.in_shards[0].variable
    others = Others(agree=True)
    monkeypatch.setattr(all_workers, "workers_of", lambda captured: others)
    all_workers.check_without_flag(stages.captured)
    assert others.asked == []  # all slots are whole
    monkeypatch.setattr(all_workers, "_reads_of_others", lambda captured, planned: [slot])
    monkeypatch.setattr(captured_slots, "slots_in_shards", lambda captured: {slot: None})
    for _ in range(2):
        all_workers.check_without_flag(stages.captured)
    (asked_once,) = others.asked
    assert asked_once.refusal is None and asked_once.subject["options"] == "the flag is off"
    silent = types.SimpleNamespace(
        begin=lambda *given: Decision(False, {0: "agreed", 1: "has not answered"}, silent=(1,))
    )
    monkeypatch.setattr(all_workers, "workers_of", lambda captured: silent)
    monkeypatch.setattr(all_workers, "_kept", lambda captured, names, attribute: {})
    with pytest.raises(StorageError, match="with the same flag and options"):
        all_workers.check_without_flag(stages.captured)
